# The libraries starmill needs; each is found here, once.

find_package(PkgConfig REQUIRED)

# Debian keeps several MPIs side by side under suffixed names; naming them
# leaves the system's own choice (update-alternatives) alone.
string(TOLOWER "${MILL_MPI}" mill_mpi)
if(mill_mpi STREQUAL "openmpi" OR mill_mpi STREQUAL "mpich")
  foreach(pair MPI_C_COMPILER:mpicc MPIEXEC_EXECUTABLE:mpirun)
    string(REPLACE ":" ";" pair "${pair}")
    list(GET pair 0 variable)
    list(GET pair 1 program)
    find_program(${variable} NAMES ${program}.${mill_mpi})
    if(NOT ${variable})
      message(FATAL_ERROR "MILL_MPI=${MILL_MPI}: ${program}.${mill_mpi} not found. On Debian and "
                          "Ubuntu: apt-get install lib${mill_mpi}-dev")
    elseif(NOT ${variable} MATCHES "\\.${mill_mpi}$")
      message(FATAL_ERROR "MILL_MPI=${MILL_MPI}, but this build folder already uses "
                          "${${variable}}. Take a fresh one.")
    endif()
  endforeach()
  # a serial HDF5, else the parallel one of that MPI
  find_program(HDF5_C_COMPILER_EXECUTABLE NAMES h5cc h5pcc.${mill_mpi})
elseif(NOT mill_mpi MATCHES "^(auto|off)$")
  message(FATAL_ERROR "MILL_MPI is AUTO, openmpi, mpich or OFF, not '${MILL_MPI}'")
endif()

if(mill_mpi STREQUAL "off")
  add_library(MPI::MPI_C INTERFACE IMPORTED)
  target_include_directories(MPI::MPI_C INTERFACE "${PROJECT_SOURCE_DIR}/src/ranks/one_process")
  set(MPI_C_VERSION "OFF")
else()
  find_package(MPI REQUIRED COMPONENTS C)
endif()

find_package(HDF5 REQUIRED COMPONENTS C) # serial or parallel
if(mill_mpi STREQUAL "off" AND HDF5_IS_PARALLEL)
  message(FATAL_ERROR "MILL_MPI=OFF needs a serial HDF5, and ${HDF5_C_LIBRARIES} is parallel: name "
                      "the h5cc of a serial one by -DHDF5_C_COMPILER_EXECUTABLE=, in a fresh folder")
endif()
add_library(mill_hdf5 INTERFACE)
target_include_directories(mill_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(mill_hdf5 INTERFACE ${HDF5_C_LIBRARIES} MPI::MPI_C)
target_compile_definitions(mill_hdf5 INTERFACE ${HDF5_C_DEFINITIONS})

pkg_check_modules(CFITSIO REQUIRED IMPORTED_TARGET cfitsio)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
find_package(ZLIB REQUIRED)
find_path(MILL_RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED) # headers only
find_package(OpenMP REQUIRED COMPONENTS C)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# BLAS and LAPACK: OpenBLAS unless BLA_VENDOR says otherwise.
if(NOT DEFINED BLA_VENDOR)
  set(BLA_VENDOR OpenBLAS)
endif()
find_package(BLAS REQUIRED)
find_package(LAPACK REQUIRED)
pkg_check_modules(OPENBLAS QUIET openblas)
find_path(MILL_CBLAS_INCLUDE_DIR cblas.h HINTS ${OPENBLAS_INCLUDE_DIRS}
          PATH_SUFFIXES openblas REQUIRED)
find_path(MILL_LAPACKE_INCLUDE_DIR lapacke.h HINTS ${OPENBLAS_INCLUDE_DIRS}
          PATH_SUFFIXES openblas lapacke REQUIRED)

include(CheckFunctionExists)
set(CMAKE_REQUIRED_LIBRARIES ${LAPACK_LIBRARIES} ${BLAS_LIBRARIES} m)
check_function_exists(LAPACKE_dpotrf MILL_LAPACKE_IN_LAPACK)
check_function_exists(openblas_get_config MILL_HAVE_OPENBLAS)
unset(CMAKE_REQUIRED_LIBRARIES)
add_library(mill_lapack INTERFACE)
if(NOT MILL_LAPACKE_IN_LAPACK) # Debian ships the C interface as a library of its own
  find_library(MILL_LAPACKE_LIBRARY lapacke REQUIRED)
  target_link_libraries(mill_lapack INTERFACE ${MILL_LAPACKE_LIBRARY})
endif()
target_link_libraries(mill_lapack INTERFACE ${LAPACK_LIBRARIES} ${BLAS_LIBRARIES})
target_include_directories(mill_lapack SYSTEM INTERFACE ${MILL_CBLAS_INCLUDE_DIR}
                           ${MILL_LAPACKE_INCLUDE_DIR})

# CUDA is optional; the toolkit is often installed without being in PATH.
if(NOT MILL_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "MILL_CUDA is AUTO, ON or OFF, not '${MILL_CUDA}'")
endif()
set(MILL_CUDA_FOUND FALSE)
if(NOT MILL_CUDA STREQUAL "OFF")
  find_program(MILL_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(MILL_NVCC)
    if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
      set(CMAKE_CUDA_COMPILER "${MILL_NVCC}" CACHE FILEPATH "CUDA compiler")
    endif()
    set(default_architectures FALSE)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES "${MILL_CUDA_ARCHITECTURES}")
      if(MILL_CUDA_ARCHITECTURES STREQUAL "DEFAULT")
        set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
        set(default_architectures TRUE)
      endif()
    endif()
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      enable_language(CUDA)
      if(default_architectures AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
        list(INSERT CMAKE_CUDA_ARCHITECTURES 2 100-real 120-real) # Blackwell
      endif()
      # conditional nodes of graphs
      if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
        set(text "CUDA ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER}) is too old: 12.4 is the oldest")
        if(MILL_CUDA STREQUAL "ON")
          message(FATAL_ERROR "${text}. Set CUDACXX to a newer nvcc, or build with -DMILL_CUDA=OFF.")
        endif()
        message(WARNING "${text}. This build is without CUDA.")
      else()
        find_package(CUDAToolkit REQUIRED)
        set(CMAKE_CUDA_STANDARD 17)
        set(CMAKE_CUDA_STANDARD_REQUIRED ON)
        set(MILL_CUDA_FOUND TRUE)
      endif()
    endif()
  endif()
  if(MILL_CUDA STREQUAL "ON" AND NOT MILL_CUDA_FOUND)
    message(FATAL_ERROR "MILL_CUDA=ON, but no working nvcc was found. Set CUDACXX to it, put it in "
                        "PATH, or build with -DMILL_CUDA=OFF.")
  endif()
endif()

# Ranges for profilers (NVTX): headers of CUDA's toolkit that do not need the toolkit.
find_path(MILL_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
          HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDA_HOME PATHS /usr/local/cuda
          PATH_SUFFIXES include)

# C++ only checks that public headers compile as C++ (CUDA reads them so).
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
endif()
