# The package in the build tree of a sanitized build: its sources beside an extension that is instrumented as the library
# is. Tests find it by PYTHONPATH; what is installed in HAWSER_VENV stays as it is. Python itself is not instrumented, so the
# run time of the sanitizer is preloaded (gcc; clang has it in programs only).
set(Python_EXECUTABLE "${HAWSER_VENV}/bin/python")
find_package(Python 3.11 COMPONENTS Interpreter Development.Module)
if(NOT Python_FOUND)
  message(STATUS "The headers of ${Python_EXECUTABLE} were not found: the Python extension is not tested with sanitizers")
  return()
endif()

set(hawser_python_root "${CMAKE_CURRENT_SOURCE_DIR}/bindings/python")
set(HAWSER_SANITIZED_PYTHONPATH "${CMAKE_CURRENT_BINARY_DIR}/python")
file(GLOB extension_sources CONFIGURE_DEPENDS "${hawser_python_root}/ext/*.c")
python_add_library(hawser_python_extension MODULE ${extension_sources})
target_compile_definitions(hawser_python_extension PRIVATE _GNU_SOURCE Py_LIMITED_API=0x030b0000)
target_compile_options(hawser_python_extension PRIVATE -Wall -Wextra -Werror -fvisibility=hidden)
target_link_libraries(hawser_python_extension PRIVATE hawser)
set_target_properties(hawser_python_extension PROPERTIES
  PREFIX "" OUTPUT_NAME _core SUFFIX .abi3.so LIBRARY_OUTPUT_DIRECTORY "${HAWSER_SANITIZED_PYTHONPATH}/hawser")
add_custom_target(hawser_python_sanitized ALL
  COMMAND "${CMAKE_COMMAND}" -E copy_directory "${hawser_python_root}/src/hawser" "${HAWSER_SANITIZED_PYTHONPATH}/hawser"
  DEPENDS hawser_python_extension VERBATIM)
