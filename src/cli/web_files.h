// The files of the page of `keynest inspect`, embedded when the program is built (cmake/KeynestWeb.cmake).
#pragma once

#include <string_view>

namespace keynest::cli {

std::string_view web_page();    ///< web/inspect.html
std::string_view web_style();   ///< web/inspect.css
std::string_view web_script();  ///< web/inspect.js
std::string_view web_charts();  ///< Chart.js; empty in a build without it

}  // namespace keynest::cli
