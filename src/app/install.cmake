# `cmake --install`: the program with its completions and man page, and the library as a CMake package.
#
# The package is one shared library with the public headers, so that a program that uses it needs none of our
# dependencies' packages: find_package(llmgen), target_link_libraries(… llmgen::llmgen).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/shared.cpp "// All code comes from the rooms' archives.\n")
add_library(llmgen_shared SHARED ${CMAKE_CURRENT_BINARY_DIR}/shared.cpp)
set_target_properties(llmgen_shared PROPERTIES
  OUTPUT_NAME llmgen EXPORT_NAME llmgen VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_include_directories(llmgen_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(llmgen_shared INTERFACE cxx_std_20)
# The public functions live in these two rooms; the others follow by reference.
target_link_libraries(llmgen_shared PRIVATE
  -Wl,--whole-archive $<TARGET_FILE:llmgen_engine> $<TARGET_FILE:llmgen_text> -Wl,--no-whole-archive llmgen_engine)
add_dependencies(llmgen_shared llmgen_engine llmgen_text)

install(TARGETS llmgen RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS llmgen_shared EXPORT llmgenTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/llmgen DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT llmgenTargets NAMESPACE llmgen:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/llmgen)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/llmgenConfig.cmake
  "include(\"\${CMAKE_CURRENT_LIST_DIR}/llmgenTargets.cmake\")\n")
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/llmgenConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/llmgenConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/llmgenConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/llmgen)
if(EXISTS ${PROJECT_SOURCE_DIR}/LICENSE)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/llmgen)
endif()

# Printed by the program itself from its option definitions.
set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated})
add_custom_command(TARGET llmgen POST_BUILD
  COMMAND $<TARGET_FILE:llmgen> completion bash > ${generated}/llmgen
  COMMAND $<TARGET_FILE:llmgen> completion zsh > ${generated}/_llmgen
  COMMAND $<TARGET_FILE:llmgen> completion fish > ${generated}/llmgen.fish
  COMMAND $<TARGET_FILE:llmgen> man > ${generated}/llmgen.1
  VERBATIM)
install(FILES ${generated}/llmgen DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${generated}/_llmgen DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${generated}/llmgen.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${generated}/llmgen.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
