// The page: web/inspect.html with everything it refers to put in.
#include <array>
#include <utility>

#include "cli/inspection.h"
#include "cli/web_files.h"

namespace keynest::cli {
namespace {

/// JSON that may stand inside a <script>: the text of the prompt can hold "</script>" or "<!--", so no "<" is
/// left. Outside its strings JSON has none.
std::string inside_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string inspection_page(const Inspection& inspection) {
  const std::string data = inside_script(inspection_json(inspection));
  // In the order they have in the page: what was put in is never searched.
  const std::array<std::pair<std::string_view, std::string_view>, 4> parts{
      {{"@STYLE@", web_style()}, {"@DATA@", data}, {"@CHARTS@", web_charts()}, {"@SCRIPT@", web_script()}}};
  std::string_view rest = web_page();
  std::string page;
  for (const auto& [mark, content] : parts) {
    const std::size_t at = rest.find(mark);
    if (at == std::string_view::npos) continue;
    page.append(rest.substr(0, at)).append(content);
    rest.remove_prefix(at + mark.size());
  }
  return page.append(rest);
}

}  // namespace keynest::cli
