// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that steps need beside the Rust toolchain, and where Debian has them.

use anyhow::{Result, bail};
use rustix::process::geteuid;

use crate::allocators;
use crate::shell;

/// A program, the Debian package that brings it, and what asks for it.
#[derive(Debug)]
pub(crate) struct Tool {
    /// Name on the path, or a path.
    pub(crate) program: &'static str,
    /// Debian package.
    pub(crate) package: &'static str,
    /// Steps of `cargo xtask test` that cannot do without.
    pub(crate) steps: &'static [&'static str],
}

/// All of them.
pub(crate) const TOOLS: &[Tool] = &[
    Tool {
        program: "cc",
        package: "gcc",
        steps: &[
            "clippy",
            "doc",
            "test",
            "learn",
            "recipe",
            "asan",
            "asan-library",
            "tsan",
            "soak",
            "soak-long",
            "e2e",
            "programs",
            "programs-more",
            "allocators",
        ],
    },
    Tool { program: "git", package: "git", steps: &["test", "dist", "recipe", "interop"] },
    Tool { program: "g++", package: "g++", steps: &["fuzz"] },
    Tool {
        program: "readelf",
        package: "binutils",
        steps: &["test", "tsan", "dist", "programs", "programs-more", "pyverbs", "recipe"],
    },
    Tool { program: "strip", package: "binutils", steps: &["dist", "recipe"] },
    Tool { program: "tar", package: "tar", steps: &["dist", "recipe"] },
    Tool { program: "gzip", package: "gzip", steps: &["dist", "recipe"] },
    Tool { program: "dpkg-deb", package: "dpkg", steps: &["dist"] },
    Tool { program: "chromium", package: "chromium", steps: &["e2e"] },
    Tool { program: "tcpdump", package: "tcpdump", steps: &["test", "e2e"] },
    Tool { program: "tshark", package: "tshark", steps: &["test", "e2e", "emulated"] },
    Tool {
        program: "/usr/lib/python3/dist-packages/scapy/contrib/roce.py",
        package: "python3-scapy",
        steps: &["test", "emulated"],
    },
    Tool { program: "s390x-linux-gnu-gcc", package: "gcc-s390x-linux-gnu", steps: &["emulated"] },
    Tool {
        program: "/usr/s390x-linux-gnu/lib/crt1.o",
        package: "libc6-dev-s390x-cross",
        steps: &["emulated"],
    },
    Tool { program: "qemu-s390x-static", package: "qemu-user-static", steps: &["emulated"] },
    Tool { program: "groff", package: "groff-base", steps: &["test"] },
    Tool {
        program: "valgrind",
        package: "valgrind",
        steps: &["test", "recipe", "instructions", "allocators"],
    },
    Tool { program: allocators::JEMALLOC, package: "libjemalloc2", steps: &["allocators"] },
    Tool { program: "rpm", package: "rpm", steps: &["dist"] },
    Tool { program: "rpm2cpio", package: "rpm2cpio", steps: &["dist"] },
    Tool { program: "cpio", package: "cpio", steps: &["dist"] },
    Tool {
        program: "setpriv",
        package: "util-linux",
        steps: &[
            "test",
            "musl",
            "e2e",
            "dist",
            "programs",
            "programs-more",
            "pyverbs",
            "learn",
            "recipe",
            "soak",
            "soak-long",
            "asan",
            "asan-library",
            "tsan",
            "allocators",
        ],
    },
    Tool {
        program: "unshare",
        package: "util-linux",
        steps: &[
            "test",
            "musl",
            "e2e",
            "learn",
            "recipe",
            "asan",
            "asan-library",
            "tsan",
            "allocators",
        ],
    },
    Tool {
        program: "ip",
        package: "iproute2",
        steps: &[
            "test",
            "musl",
            "e2e",
            "programs",
            "programs-more",
            "pyverbs",
            "learn",
            "recipe",
            "soak",
            "soak-long",
            "asan",
            "asan-library",
            "tsan",
            "allocators",
        ],
    },
    Tool {
        program: "ibv_devices",
        package: "ibverbs-utils",
        steps: &["test", "e2e", "dist", "programs", "programs-more", "recipe", "soak", "soak-long"],
    },
    Tool {
        program: "rping",
        package: "rdmacm-utils",
        steps: &["test", "e2e", "programs", "recipe", "soak", "soak-long", "allocators"],
    },
    Tool {
        program: "ib_write_bw",
        package: "perftest",
        steps: &["test", "e2e", "programs", "recipe", "soak", "soak-long", "allocators"],
    },
    Tool { program: "qperf", package: "qperf", steps: &["test", "programs", "allocators"] },
    Tool { program: "fio", package: "fio", steps: &["programs", "soak", "soak-long"] },
    Tool { program: "fi_pingpong", package: "libfabric-bin", steps: &["programs"] },
    Tool { program: "mpirun", package: "openmpi-bin", steps: &["programs"] },
    Tool { program: "mpicc", package: "libopenmpi-dev", steps: &["programs"] },
    Tool { program: "ucx_perftest", package: "ucx-utils", steps: &["programs"] },
    Tool { program: "/usr/include/ucp/api/ucp.h", package: "libucx-dev", steps: &["programs"] },
    // For the bindings of Rust crates, which bring C sources.
    Tool {
        program: "/usr/include/infiniband/verbs.h",
        package: "libibverbs-dev",
        steps: &[
            "test",
            "programs",
            "programs-more",
            "learn",
            "recipe",
            "asan",
            "asan-library",
            "tsan",
            "soak",
            "soak-long",
            "e2e",
            "allocators",
        ],
    },
    Tool {
        program: "/usr/include/rdma/rdma_cma.h",
        package: "librdmacm-dev",
        steps: &[
            "test",
            "learn",
            "recipe",
            "asan",
            "asan-library",
            "tsan",
            "soak",
            "soak-long",
            "e2e",
            "programs-more",
            "allocators",
        ],
    },
    Tool {
        program: "/usr/lib/llvm-14/lib/libclang.so",
        package: "libclang-14-dev",
        steps: &["programs-more", "recipe"],
    },
    Tool { program: "cmake", package: "cmake", steps: &["programs-more", "recipe"] },
    Tool { program: "make", package: "make", steps: &["programs-more", "recipe"] },
    Tool { program: "pkg-config", package: "pkg-config", steps: &["programs-more", "recipe"] },
    Tool {
        program: "/usr/lib/python3/dist-packages/pyverbs/__init__.py",
        package: "python3-pyverbs",
        steps: &["programs", "pyverbs", "learn"],
    },
];

/// Installs what is missing for `steps`, where that is possible.
///
/// # Errors
///
/// When something is still missing afterwards.
pub(crate) fn ensure(steps: &[&str]) -> Result<()> {
    let needed = |tool: &&Tool| tool.steps.iter().any(|step| steps.contains(step));
    ensure_tools(TOOLS.iter().filter(needed))
}

/// Installs what is missing of these, where that is possible.
///
/// # Errors
///
/// When something is still missing afterwards.
pub(crate) fn ensure_tools<'a>(tools: impl Iterator<Item = &'a Tool> + Clone) -> Result<()> {
    let missing = || tools.clone().filter(|tool| !shell::exists(tool.program));
    let wanted: Vec<&Tool> = missing().collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = wanted.iter().map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let list = packages.join(" ");
    if !geteuid().is_root() || !shell::exists("apt-get") {
        let programs: Vec<&str> = wanted.iter().map(|tool| tool.program).collect();
        bail!(
            "missing: {}; as root: apt-get install --no-install-recommends {list}",
            programs.join(", ")
        );
    }
    println!("installing {list}");
    let apt = |args: &[&str]| {
        let mut command = shell::program("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("-qq").args(args);
        shell::run(&mut command)
    };
    apt(&["update"])?;
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(packages);
    apt(&install)?;
    match missing().next() {
        Some(tool) => bail!("{} is installed but {} is not found", tool.package, tool.program),
        None => Ok(()),
    }
}
