// The page of `keynest inspect` in a real browser: what it shows is what the JSON says, for every policy.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/program.h"
#include "cli/tiny.h"
#include "cli/web_files.h"

namespace keynest::test {
namespace {

using Json = nlohmann::json;

constexpr const char* kHostile = "</script><script>alert(1)</script><b>bold</b> & caf\xC3\xA9 \xFF end ";

/// Runs before the page's own scripts: notes what must not happen.
constexpr const char* kWatch = R"js(<head><script>
window.failures = [];
window.alert = () => failures.push("alert");
addEventListener("error", (event) => failures.push(event.message));
addEventListener("securitypolicyviolation", (event) => failures.push(event.blockedURI));
</script>)js";

/// Runs after them: uses the page as a reader does and writes down what is there.
constexpr const char* kProbe = R"js(<script>
const at = (id) => document.getElementById(id);
function pixels(id) {
  const canvas = at(id), colours = new Set();
  if (canvas.width === 0 || canvas.height === 0) return {colours: 0, hash: 0};
  const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let hash = 0;
  for (const pixel of new Uint32Array(image.data.buffer)) {
    colours.add(pixel);
    hash = (Math.imul(hash, 31) + pixel) | 0;
  }
  return {colours: colours.size, hash};
}
const bars = () => typeof Chart === "undefined" ? null : Chart.getChart("budgets").data.datasets.map((set) => set.data);
const look = () => ({
  shades: [...document.querySelectorAll("#text span")].map((span) => span.style.backgroundColor !== "transparent"),
  map: pixels("map"), bars: bars(), budgets: pixels("budgets"), where: pixels("where"),
  rows: document.querySelectorAll("#numbers tbody tr").length,
});
const wait = () => new Promise((resolve) => setTimeout(resolve, 300));
const press = (id, key) => at(id).dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
(async () => {
  const seen = {};
  await wait();
  seen.policies = [...document.querySelectorAll("#policies label")].map((label) => label.textContent);
  seen.text = at("text").textContent;
  seen.markup = document.querySelectorAll("#text :not(span)").length;
  seen.first = look();
  document.querySelectorAll("#policies input")[1].click();
  await wait();
  seen.second = look();
  at("head").value = "1";
  at("head").dispatchEvent(new Event("change"));
  seen.oneHead = pixels("map");
  for (const key of ["ArrowRight", "ArrowRight", "ArrowRight"]) press("text", key);
  seen.token = at("token").textContent;
  seen.holders = document.querySelectorAll("#holders i").length;
  seen.kept = document.querySelectorAll("#holders i.kept").length;
  press("map", "ArrowDown");
  seen.cell = at("cell").textContent;
  seen.notices = document.querySelectorAll(".chart .notice").length;
  seen.requests = performance.getEntriesByType("resource").length;
  seen.failures = failures;
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = encodeURIComponent(JSON.stringify(seen));
  document.body.append(out);
})();
</script></body>)js";

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 65536> part{};
  for (std::size_t n; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) out.append(part.data(), n);
  pclose(pipe);
  return out;
}

/// KEYNEST_BROWSER, or the first Chromium on the path; empty: none.
std::string browser() {
  if (const char* named = std::getenv("KEYNEST_BROWSER")) return named;
  for (const char* name : {"chromium-headless-shell", "chromium", "google-chrome"}) {
    if (!output_of(std::string("command -v ") + name).empty()) return name;
  }
  return {};
}

void replace(std::string& text, const std::string& what, const std::string& by) {
  const std::size_t at = text.rfind(what);
  ASSERT_NE(at, std::string::npos) << what;
  text.replace(at, what.size(), by);
}

std::string decoded(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
    i += 2;
  }
  return out;
}

class InspectPage : public Tiny {
 protected:
  static void make() {
    std::string text = kHostile;
    for (int i = 0; i < 200; ++i) text += static_cast<char>('a' + i * i % 23);
    const Outcome outcome =
        run_program({"inspect", "-m", file("tiny.gguf"), "-t", "1", "--block", "16", "--no-chat", "--budget",
                     "32", "--policy", "keydiff", "--policy", "nestedkv", "--html", file("page.html"),
                     "--json", file("page.json"), "-q"},
                    text);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }

  /// What the probe saw.
  static Json visit(const std::string& program) {
    std::string page = read("page.html");
    const std::size_t head = page.find("<head>");
    page.replace(head, 6, kWatch);
    replace(page, "</body>", kProbe);
    write("probed.html", page);
    const std::string dom = output_of(
        "timeout 240 " + program +
        " --headless --no-sandbox --disable-gpu --window-size=1280,2000 --user-data-dir=" + file("profile") +
        " --virtual-time-budget=20000 --dump-dom file://" + file("probed.html") + " 2>/dev/null");
    const std::string opening = "<pre id=\"probe\">";
    const std::size_t begin = dom.rfind(opening);
    if (begin == std::string::npos) return {};
    const std::size_t first = begin + opening.size();
    return Json::parse(decoded(dom.substr(first, dom.find("</pre>", first) - first)));
  }
};

void expect_shows(const Json& seen, const Json& run, const Json& all) {
  for (std::size_t i = 0; i < all["tokens"].size(); ++i) {
    EXPECT_EQ(seen["shades"][i], run["kept_share"][i] > 0.0) << "token " << i;
  }
  EXPECT_EQ(seen["rows"], run["heads"].size());
  EXPECT_GT(seen["map"]["colours"], 5);
  if (cli::web_charts().empty()) return;
  EXPECT_GT(seen["budgets"]["colours"], 5);
  EXPECT_GT(seen["where"]["colours"], 5);
  ASSERT_EQ(seen["bars"].size(), all["kv_heads"]);
  for (const Json& head : run["heads"]) {
    EXPECT_EQ(seen["bars"][head["kv_head"].get<std::size_t>()][head["layer"].get<std::size_t>()],
              head["entries"]);
  }
}

TEST_F(InspectPage, ShowsWhatTheNumbersSay) {
  const std::string program = browser();
  if (program.empty()) GTEST_SKIP() << "no browser: scripts/setup --browser installs one";
  make();
  const Json all = Json::parse(read("page.json"));
  const Json seen = visit(program);
  ASSERT_TRUE(seen.is_object()) << program << " gave no page";

  EXPECT_EQ(seen["failures"], Json::array());
  EXPECT_EQ(seen["requests"], 0);
  EXPECT_EQ(seen["markup"], 0);
  std::string text;
  for (const Json& piece : all["texts"]) text += piece.get<std::string>();
  EXPECT_EQ(seen["text"], text);
  EXPECT_TRUE(holds(text, "</script><script>alert(1)</script><b>bold</b> & caf\xC3\xA9 \xEF\xBF\xBD end"));

  EXPECT_EQ(seen["policies"], Json({"keydiff", "nestedkv"}));
  expect_shows(seen["first"], all["runs"][0], all);
  expect_shows(seen["second"], all["runs"][1], all);
  EXPECT_NE(seen["first"]["map"]["hash"], seen["second"]["map"]["hash"]);
  EXPECT_NE(seen["oneHead"]["hash"], seen["second"]["map"]["hash"]);
  EXPECT_EQ(seen["notices"], cli::web_charts().empty() ? 2 : 0);
}

TEST_F(InspectPage, CanBeUsedByKeyboard) {
  const std::string program = browser();
  if (program.empty()) GTEST_SKIP() << "no browser: scripts/setup --browser installs one";
  make();
  const Json all = Json::parse(read("page.json"));
  const Json seen = visit(program);
  ASSERT_TRUE(seen.is_object()) << program << " gave no page";
  EXPECT_TRUE(holds(seen["token"], "position 2 ")) << seen["token"];
  EXPECT_EQ(seen["holders"], all["runs"][1]["heads"].size());
  EXPECT_NEAR(seen["kept"].get<double>(), 4 * all["runs"][1]["kept_share"][2].get<double>(), 1e-4);
  EXPECT_TRUE(holds(seen["cell"], "layer 1 ")) << seen["cell"];
}

}  // namespace
}  // namespace keynest::test
