# Writes the files of the page as a C++ source.
#   cmake -DOUT=web_files.cc -DWEB=web -DCHART=chart.min.js -P embed_web.cmake
# Bytes as numbers: a string literal may not be this long everywhere. CHART empty: an empty text.

set(text "// Made by cmake/embed_web.cmake.\n#include \"cli/web_files.h\"\n\nnamespace keynest::cli {\nnamespace {\n\n")
set(functions "")

function(embed name file)
  set(hex "")
  if(file)
    file(READ "${file}" hex HEX)
  endif()
  string(LENGTH "${hex}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  set(text "${text}constexpr unsigned char k_${name}[] = {${bytes}0};\n" PARENT_SCOPE)
  set(functions "${functions}std::string_view web_${name}() {\n  return {reinterpret_cast<const char*>(k_${name}), ${size}};\n}\n"
      PARENT_SCOPE)
endfunction()

embed(page "${WEB}/inspect.html")
embed(style "${WEB}/inspect.css")
embed(script "${WEB}/inspect.js")
embed(charts "${CHART}")
file(WRITE "${OUT}" "${text}\n}  // namespace\n\n${functions}\n}  // namespace keynest::cli\n")
