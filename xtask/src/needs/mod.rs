//! The programs, headers and libraries that the steps need besides Rust and the base of Debian, and the packages that
//! contain them.
//!
//! A step lists its needs in a [`Needs`], with the scripts and tests that the step runs. A test checks that each
//! program that one of these scripts or tests calls is in the list.

#[cfg(test)]
mod calls;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};

use crate::cargo::run;

/// A program, header or library that is not part of every Debian.
struct Thing {
    name: &'static str,
    found: Found,
    /// The Debian package that contains the thing.
    package: &'static str,
}

/// The way in which a step checks that a [`Thing`] is installed.
enum Found {
    /// The thing is a program of this name in `PATH` or in the directories for administrators.
    Program,
    /// The thing is one of these files.
    File(&'static [&'static str]),
    /// The thing is a file of this name in a folder for libraries.
    Library,
    /// The thing is `libclang.so`, in any version, in a folder for libraries or of LLVM. If `LIBCLANG_PATH` is set, the
    /// thing counts as found.
    Clang,
}

const fn program(name: &'static str, package: &'static str) -> Thing {
    Thing { name, found: Found::Program, package }
}

const fn file(name: &'static str, files: &'static [&'static str], package: &'static str) -> Thing {
    Thing { name, found: Found::File(files), package }
}

/// The path at which Debian's package installs the sources of the guest kernel.
pub(crate) const KERNEL_SOURCE: &str = "/usr/src/linux-source-6.1.tar.xz";

/// The things that a step may need.
const THINGS: &[Thing] = &[
    program("gcc", "gcc"),
    file("stdio.h", &["/usr/include/stdio.h"], "libc6-dev"),
    program("ip", "iproute2"),
    program("tc", "iproute2"),
    program("nft", "nftables"),
    program("iperf3", "iperf3"),
    program("rdma", "iproute2"),
    program("unshare", "util-linux"),
    program("corosync", "corosync"),
    Thing { name: "libcpg.so.4", found: Found::Library, package: "libcpg4" },
    program("cmake", "cmake"),
    program("g++", "g++"),
    file("bsd/bsd.h", &["/usr/include/bsd/bsd.h"], "libbsd-dev"),
    file("uuid/uuid.h", &["/usr/include/uuid/uuid.h"], "uuid-dev"),
    program("nats-server", "nats-server"),
    program("etcd", "etcd-server"),
    program("protoc", "protobuf-compiler"),
    file("google/protobuf/descriptor.proto", &["/usr/include/google/protobuf/descriptor.proto"], "libprotobuf-dev"),
    program("redis-server", "redis-server"),
    program("redis-benchmark", "redis-tools"),
    program("python3", "python3"),
    file(
        "ensurepip",
        &["/usr/lib/python3.11/ensurepip/__init__.py", "/usr/lib/python3.13/ensurepip/__init__.py"],
        "python3-venv",
    ),
    program("mpicc", "libopenmpi-dev"),
    program("mpirun", "openmpi-bin"),
    program("ucx_perftest", "ucx-utils"),
    program("ucx_info", "ucx-utils"),
    program("busybox", "busybox-static"),
    program("ibv_rc_pingpong", "ibverbs-utils"),
    file("rxe.driver", &["/etc/libibverbs.d/rxe.driver"], "ibverbs-providers"),
    file("infiniband/verbs.h", &["/usr/include/infiniband/verbs.h"], "libibverbs-dev"),
    program("tshark", "tshark"),
    program("valgrind", "valgrind"),
    program("git", "git"),
    program("codespell", "codespell"),
    program("fi_info", "libfabric-bin"),
    program("fi_pingpong", "libfabric-bin"),
    Thing { name: "libfabric.so.1", found: Found::Library, package: "libfabric1" },
    file("rdma/fi_domain.h", &["/usr/include/rdma/fi_domain.h"], "libfabric-dev"),
    Thing { name: "libclang", found: Found::Clang, package: "libclang-dev" },
    Thing { name: "faketime/libfaketimeMT.so.1", found: Found::Library, package: "libfaketime" },
    program("java", "default-jre-headless"),
    file("zookeeper.jar", &["/usr/share/java/zookeeper.jar"], "zookeeper"),
    program("flex", "flex"),
    program("bison", "bison"),
    program("bc", "bc"),
    program("make", "make"),
    program("xz", "xz-utils"),
    file("linux-source-6.1", &[KERNEL_SOURCE], "linux-source-6.1"),
];

/// The programs, headers and libraries that a step needs, and the code that calls the programs.
#[derive(Debug)]
pub(crate) struct Needs {
    /// Names of the needed things.
    pub things: &'static [&'static str],
    /// Files, and folders with everything in them, whose code calls programs when the step runs. The paths are relative
    /// to the repository root.
    #[cfg_attr(not(test), allow(dead_code))]
    pub sources: &'static [&'static str],
}

impl Needs {
    /// Installs the packages of missing things if the user is root on Debian. Otherwise fails with an error that names
    /// the command to run.
    pub(crate) fn ensure(&self) -> Result<()> {
        ensure(self.things)
    }
}

/// Installs the packages of the named things that are missing.
pub(crate) fn ensure(names: &[&str]) -> Result<()> {
    let absent = missing(names);
    if absent.is_empty() {
        return Ok(());
    }
    let (what, packages) = (listed(&absent), packages(&absent));
    if !rustix::process::geteuid().is_root() || !has("apt-get") {
        bail!("not installed: {what}; run as root: {}", remedy(&packages));
    }
    // If two steps run at the same time, one installs, and the other checks again.
    let _lock = installing()?;
    let absent = missing(names);
    if absent.is_empty() {
        return Ok(());
    }
    let (what, packages) = (listed(&absent), self::packages(&absent));
    println!("not installed: {what}");
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    let mut install = Command::new("apt-get");
    run(install.args(INSTALL).arg("-qq").args(&packages).env("DEBIAN_FRONTEND", "noninteractive"))?;
    let absent = missing(names);
    if absent.is_empty() {
        return Ok(());
    }
    bail!("still not installed after {}: {}", remedy(&packages), listed(&absent));
}

/// Waits until no other process of `xtask` installs packages. Holds the lock until the file is closed.
fn installing() -> Result<File> {
    let folder = File::open(PACKAGES).with_context(|| format!("cannot open {PACKAGES}"))?;
    flock(&folder, FlockOperation::LockExclusive).with_context(|| format!("cannot lock {PACKAGES}"))?;
    Ok(folder)
}

/// The folder of the package manager, which exists wherever `apt-get` does. The package manager locks files in this
/// folder.
const PACKAGES: &str = "/var/lib/dpkg";

const INSTALL: [&str; 3] = ["install", "--yes", "--no-install-recommends"];

/// Returns the command that installs packages.
fn remedy(packages: &[&str]) -> String {
    format!("apt-get update && apt-get {} {}", INSTALL.join(" "), packages.join(" "))
}

fn missing(names: &[&str]) -> Vec<&'static Thing> {
    let names: BTreeSet<_> = names.iter().collect();
    names.into_iter().map(|name| thing(name)).filter(|thing| !thing.is_there()).collect()
}

/// Returns the thing of this name.
///
/// # Panics
///
/// Panics if the table has no such thing, which is an error in the list of a step.
fn thing(name: &str) -> &'static Thing {
    THINGS.iter().find(|thing| thing.name == name).unwrap_or_else(|| panic!("{name} is not in the table of things"))
}

fn listed(things: &[&Thing]) -> String {
    things.iter().map(|thing| thing.name).collect::<Vec<_>>().join(", ")
}

fn packages(things: &[&Thing]) -> Vec<&'static str> {
    let mut packages = Vec::new();
    for thing in things {
        if !packages.contains(&thing.package) {
            packages.push(thing.package);
        }
    }
    packages
}

/// Returns whether a program is installed.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|dir| dir.join(program).is_file())
}

impl Thing {
    fn is_there(&self) -> bool {
        let triplet = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        let libraries = [triplet.as_str(), "/usr/lib64", "/usr/lib"];
        match self.found {
            Found::Program => has(self.name),
            Found::File(files) => files.iter().any(|file| Path::new(file).is_file()),
            Found::Library => libraries.iter().any(|folder| Path::new(folder).join(self.name).exists()),
            Found::Clang => {
                let llvm =
                    entries("/usr/lib").into_iter().filter(|path| begins(path, "llvm")).map(|path| path.join("lib"));
                let mut folders = libraries.iter().map(|folder| Path::new(folder).to_owned()).chain(llvm);
                std::env::var_os("LIBCLANG_PATH").is_some()
                    || folders.any(|folder| entries(folder).iter().any(|path| begins(path, "libclang.so")))
            }
        }
    }
}

fn entries(folder: impl AsRef<Path>) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn begins(path: &Path, with: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(with))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_run_names_each_missing_package_once() {
        let things: Vec<_> = ["ip", "rdma", "busybox", "infiniband/verbs.h"].map(thing).into();
        let line = remedy(&packages(&things));
        let wanted =
            "apt-get update && apt-get install --yes --no-install-recommends iproute2 busybox-static libibverbs-dev";
        assert_eq!(line, wanted);
        assert_eq!(listed(&things), "ip, rdma, busybox, infiniband/verbs.h");
    }

    #[test]
    fn absent_things_are_missing() {
        assert!(has("sh") && !has("no-such-program-anywhere"));
        let gone = Thing { name: "x", found: Found::File(&["/nowhere/x"]), package: "x" };
        assert!(!gone.is_there());
        assert!(!program("no-such-program-anywhere", "x").is_there() && program("sh", "dash").is_there());
        assert!(!Thing { name: "libnowhere.so.1", found: Found::Library, package: "x" }.is_there());
    }
}
