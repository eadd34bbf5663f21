# What the plugins of Rabbet are built with. Lies beside core's headers and records, in the repository as in the
# installed wheel, where scikit-build-core finds it by an entry point; else pass -DRabbet_DIR=$(python -m rabbet cmakedir).
#
#   find_package(Rabbet CONFIG REQUIRED)
#   rabbet_add_plugin(NAME SOURCE... [EXPORTS SYMBOL...])   a library that exports the plugin's entry and these
#   rabbet_add_binding(NAME SOURCE...)                      a Python extension module, by pybind11
#   rabbet_emit(TARGET DIALECT FOLDER)                      a target: the installed core writes the records' elementwise
#                                                           formulas as fused_bodies.inc and fused_kernels.inc
#
# Rabbet_INCLUDE_DIR has the public headers, Rabbet_RECORDS_DIR the operator records. Sources see
# RABBET_WHEEL_VERSION, a string: the version of the wheel that is being built, and RB_ABI_NEEDED: the plugin ABI's minor
# version that the plugin's manifest asks for, a rabbet_plugin.toml below src/ with `library = "libNAME.so"`.
include_guard(GLOBAL)

get_filename_component(Rabbet_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../include" ABSOLUTE)
get_filename_component(Rabbet_RECORDS_DIR "${CMAKE_CURRENT_LIST_DIR}/../ops" ABSOLUTE)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
include("${CMAKE_CURRENT_LIST_DIR}/WheelVersion.cmake")

function(_rabbet_target name)
  set_target_properties(${name} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  # The structs of rabbet/abi.h grow at their ends: who leaves out what is new means null.
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-missing-field-initializers -fno-semantic-interposition)
  target_include_directories(${name} PRIVATE "${Rabbet_INCLUDE_DIR}")
  target_compile_definitions(${name} PRIVATE RABBET_WHEEL_VERSION="${SKBUILD_PROJECT_VERSION}")
  target_link_options(${name} PRIVATE $<$<CONFIG:Release>:-s>)
endfunction()

# RB_ABI_NEEDED as `abi = [MAJOR, MINOR]` of the manifest says.
function(_rabbet_abi_needed name)
  file(GLOB_RECURSE manifests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/rabbet_plugin.toml")
  foreach(manifest IN LISTS manifests)
    file(READ "${manifest}" text)
    if(NOT text MATCHES "\nlibrary *= *\"lib${name}\\.so\"")
      continue()
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${manifest}")
    if(text MATCHES "\nabi *= *\\[ *[0-9]+ *, *([0-9]+) *\\]")
      target_compile_definitions(${name} PRIVATE RB_ABI_NEEDED=${CMAKE_MATCH_1})
    endif()
  endforeach()
endfunction()

# The signatures of core's operators as the plugin is built against them, in a source file of it: rabbet/plugin.hpp states
# them with each kernel, and core refuses those that are not its own.
function(_rabbet_schemas name)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "CXX" IN_LIST languages)
    return()
  endif()
  file(GLOB records CONFIGURE_DEPENDS "${Rabbet_RECORDS_DIR}/*.rec")
  set(schemas "")
  foreach(record IN LISTS records)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${record}")
    file(STRINGS "${record}" heads REGEX "^[a-z_0-9][A-Za-z_0-9.]*\\(.*\\) -> ")
    list(APPEND schemas ${heads})
  endforeach()
  list(SORT schemas COMPARE STRING)
  string(REPLACE "\"" "\\\"" schemas "${schemas}")
  list(JOIN schemas "\",\n    \"" lines)
  list(LENGTH schemas count)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/rabbet_schemas.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// Written by RabbetConfig.cmake from the op records. Do not edit.
extern \"C\" {
extern const char* const rabbet_schemas[];
extern const unsigned rabbet_schema_count;
const char* const rabbet_schemas[] = {
    \"@lines@\",
};
const unsigned rabbet_schema_count = @count@;
}
" @ONLY)
  target_sources(${name} PRIVATE "${source}")
  target_compile_definitions(${name} PRIVATE RABBET_SCHEMAS=1)
endfunction()

function(rabbet_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 plugin "" "" EXPORTS)
  list(PREPEND plugin_EXPORTS rabbet_plugin_v0)
  set(exports "${CMAKE_CURRENT_BINARY_DIR}/${name}.map")
  list(JOIN plugin_EXPORTS "; " symbols)
  file(CONFIGURE OUTPUT "${exports}" CONTENT "{ global: @symbols@; local: *; };\n" @ONLY)
  add_library(${name} MODULE ${plugin_UNPARSED_ARGUMENTS})
  # Other exports need another link.
  set_target_properties(${name} PROPERTIES PREFIX "lib" SUFFIX ".so" LINK_DEPENDS "${exports}")
  _rabbet_target(${name})
  _rabbet_abi_needed(${name})
  _rabbet_schemas(${name})
  target_link_options(${name} PRIVATE -static-libgcc -static-libstdc++ -Wl,--no-undefined
    "-Wl,--version-script=${exports}")
endfunction()

# Every build asks core again, which is quick: equal files are left as they are.
function(rabbet_emit target dialect folder)
  find_package(Python REQUIRED COMPONENTS Interpreter)
  add_custom_target(${target}
    COMMAND "${Python_EXECUTABLE}" -m rabbet emit --dialect ${dialect} "${folder}"
    BYPRODUCTS "${folder}/fused_bodies.inc" "${folder}/fused_kernels.inc"
    VERBATIM)
endfunction()

macro(rabbet_add_binding name)
  find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
  find_package(pybind11 CONFIG REQUIRED)
  pybind11_add_module(${name} MODULE NO_EXTRAS ${ARGN})
  _rabbet_target(${name})
endmacro()
