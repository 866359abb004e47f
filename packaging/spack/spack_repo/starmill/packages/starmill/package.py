# SPDX-License-Identifier: BSD-3-Clause
from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Starmill(CMakePackage, CudaPackage):
    """Stellar parameters for whole spectroscopic surveys: radial velocity, v sin i, Teff, log g,
    [Fe/H] and [alpha/Fe] of every star, by one MPI program for CPUs and GPUs."""

    # the checkout that this recipe is part of
    git = Path(__file__).resolve().parents[6].as_uri()

    license("BSD-3-Clause")

    version("main", branch="main")


    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("random123", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10:")
    depends_on("cfitsio@4:")
    depends_on("libyaml@0.2:")
    depends_on("jansson@2.8:")
    depends_on("openssl@1.1:")
    depends_on("zlib-api")
    depends_on("openblas")
    depends_on("cuda@12.4:", when="+cuda")

    # jobs in Python
    for package in ("python@3.9:", "py-numpy", "py-scipy", "py-h5py", "py-astropy", "py-matplotlib",
                    "py-pillow", "py-pyyaml", "py-cffi"):
        depends_on(package, type="run")

    def cmake_args(self):
        args = [
            self.define("MILL_TESTS", False),
            self.define("MILL_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
        ]
        architectures = self.spec.variants["cuda_arch"].value if "+cuda" in self.spec else ("none",)
        if "none" not in architectures:
            args.append(
                self.define("MILL_CUDA_ARCHITECTURES", [f"{a}-real" for a in architectures])
            )
        return args

    def test_smoke(self):
        """simulate four stars and fit them, alone and with two ranks"""
        which(join_path(self.prefix.share.starmill, "smoke-test"))()
