# One library per room, with the arrows of docs/design.md section 2.
#
# tessera_room(NAME [SUBFOLDERS cpu meta ...] [DEPENDS rooms...] [PUBLIC libs...] [PRIVATE libs...])
# builds tessera_NAME from every .cpp of the current folder (and the named subfolders).
function(tessera_room name)
  cmake_parse_arguments(ROOM "" "" "SUBFOLDERS;DEPENDS;PUBLIC;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(folder ${ROOM_SUBFOLDERS})
    file(GLOB more CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${more})
  endforeach()
  add_library(tessera_${name} STATIC ${sources})
  list(TRANSFORM ROOM_DEPENDS PREPEND tessera_)
  target_link_libraries(tessera_${name} PUBLIC ${ROOM_DEPENDS} ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE})
endfunction()

# tessera_tests(NAME LABELS labels... LIBS libs...): one GoogleTest program from every *_test.cpp of the current folder.
function(tessera_tests name)
  cmake_parse_arguments(T "" "TIMEOUT" "LABELS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/*_support.cpp)
  if(NOT sources)
    return()
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE ${T_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name}_test PRIVATE
    TESSERA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data" TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    TESSERA_BINARY_DIR="${PROJECT_BINARY_DIR}")
  include(GoogleTest)
  gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT})
endfunction()

# tessera_excuse_toml(SOURCE): toml++ 3.3 declares its answer for the letters U+00A1 to U+0499 outside of strings
# unreachable. Both branches that a compiler can go on in give the right one, false, and a test holds it
# (Config.ALetterOutsideOfAStringIsAnErrorWithItsPlace), but a sanitizer would end the program there.
function(tessera_excuse_toml source)
  if(TESSERA_SANITIZE MATCHES undefined)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -fno-sanitize=unreachable)
  endif()
endfunction()
