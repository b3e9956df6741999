# The page of `keynest inspect` and the library that draws its charts, as bytes inside the program, so that it needs no
# file beside itself. keynest_web(TARGET) adds them to a target.

find_file(KEYNEST_CHART_JS NAMES chart.min.js Chart.min.js
          PATHS /usr/share/javascript/chart.js /usr/local/share/javascript/chart.js
          DOC "Chart.js for the page of `keynest inspect`; OFF leaves the charts out")
if(KEYNEST_CHART_JS MATCHES "NOTFOUND$")
  message(FATAL_ERROR "Chart.js was not found, which the page of `keynest inspect` draws its charts with. Install it "
                      "(apt-get install libjs-chart.js, or scripts/setup), name the file with "
                      "-DKEYNEST_CHART_JS=FILE, or build without charts with -DKEYNEST_CHART_JS=OFF.")
endif()

function(keynest_web target)
  set(web ${PROJECT_SOURCE_DIR}/web)
  set(files ${web}/inspect.html ${web}/inspect.css ${web}/inspect.js)
  set(chart "")
  if(KEYNEST_CHART_JS)
    set(chart ${KEYNEST_CHART_JS})
  endif()
  set(out ${PROJECT_BINARY_DIR}/web_files.cc)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DWEB=${web} -DCHART=${chart}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_web.cmake
    DEPENDS ${files} ${chart} ${PROJECT_SOURCE_DIR}/cmake/embed_web.cmake
    COMMENT "Embedding the page of keynest inspect" VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
