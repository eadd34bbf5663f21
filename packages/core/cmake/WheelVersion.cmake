# SKBUILD_PROJECT_VERSION is the version of the wheel that is being built. Without a wheel it is what the project's
# pyproject.toml says: there is one place for it.
if(NOT DEFINED SKBUILD_PROJECT_VERSION)
  set(SKBUILD_PROJECT_VERSION "0.0.0")
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml")
    file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml" _version REGEX "^version *= *\"[^\"]+\"" LIMIT_COUNT 1)
    if(_version MATCHES "\"([^\"]+)\"")
      set(SKBUILD_PROJECT_VERSION "${CMAKE_MATCH_1}")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml")
  endif()
endif()
