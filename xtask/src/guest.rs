//! The guest kernel: User-Mode Linux with Soft-RoCE, which the steps boot as an ordinary process.
//!
//! The kernel comes from the folder that `STENTOR_RXE` names. If the variable is not set, the kernel comes from
//! `../shared/rxe`. If `../shared/rxe` has no kernel that can start a process on this processor, the recipe in
//! `xtask/guest` builds the kernel once into the user's cache.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use stentor_testutil::TempDir;

use crate::cargo::{Context, run};
use crate::needs::{self, KERNEL_SOURCE, Needs};

/// The configuration of the kernel, which is a part of the recipe. The kernel is rebuilt when the recipe changes.
const CONFIG: &str = include_str!("../guest/uml.config");
/// The build script of the kernel, which is the other part of the recipe.
const BUILD: &str = include_str!("../guest/build");

/// The programs that every guest needs.
const BOOT: Needs = Needs { things: &["busybox", "ip"], sources: &["xtask/guest/uml-run", "xtask/guest/init.sh"] };
/// The programs, the header and the sources that are needed to build the kernel.
const RECIPE: Needs = Needs {
    things: &["gcc", "stdio.h", "flex", "bison", "bc", "make", "xz", "linux-source-6.1"],
    sources: &["xtask/guest/build"],
};
/// The program that unpacks a kernel.
const UNPACK: Needs = Needs { things: &["xz"], sources: &["xtask/src/guest.rs"] };

/// All lists of needs of guests. A test compares them with the programs that scripts and tests call.
#[cfg(test)]
pub(crate) const NEEDS: [&Needs; 3] = [&BOOT, &RECIPE, &UNPACK];

/// A kernel, and the folder with the script `uml-run` that boots it.
#[derive(Debug)]
pub(crate) struct Guest {
    folder: PathBuf,
    kernel: PathBuf,
}

/// The origin of a kernel.
#[derive(Debug, PartialEq, Eq)]
enum Origin {
    /// A kernel that is not compressed.
    Plain(PathBuf),
    /// A kernel compressed by xz.
    Packed(PathBuf),
    /// The recipe, from which the kernel is built.
    Recipe,
}

impl Guest {
    /// Returns the guest kernel, unpacked or built if necessary. First installs everything that the step and the guest
    /// need.
    ///
    /// # Errors
    ///
    /// Fails if a missing program or file cannot be installed; the error names the command to run. Also fails if the
    /// build fails, or if the kernel cannot start a process on this machine.
    pub(crate) fn ready(context: &Context, step: &Needs) -> Result<Guest> {
        let named = std::env::var_os("STENTOR_RXE");
        let origin = origin(named.as_deref(), &context.root.join("../shared/rxe"))?;
        let is_offered = origin != Origin::Recipe;
        let guest = Guest::of(context, step, origin)?;
        if guest.boots()? {
            return Ok(guest);
        }
        ensure!(
            named.is_none() && is_offered,
            "the guest kernel {} cannot start a process here: its messages are above",
            guest.kernel.display()
        );
        println!("the guest kernel of ../shared/rxe cannot start a process on this processor: building another kernel");
        let guest = Guest::of(context, step, Origin::Recipe)?;
        ensure!(
            guest.boots()?,
            "the guest kernel {} cannot start a process here: its messages are above",
            guest.kernel.display()
        );
        Ok(guest)
    }

    /// Returns whether a guest runs an empty script.
    fn boots(&self) -> Result<bool> {
        let folder = TempDir::new();
        let script = folder.file("nothing.sh", "exit 0\n");
        let ended = self.boot(&script).env("UML_TIMEOUT", "60").output().context("cannot boot a guest")?;
        if !ended.status.success() {
            std::io::stdout().write_all(&ended.stdout)?;
        }
        Ok(ended.status.success())
    }

    fn of(context: &Context, step: &Needs, origin: Origin) -> Result<Guest> {
        let (name, more) = match &origin {
            Origin::Plain(_) => (None, &[][..]),
            Origin::Packed(file) => {
                let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
                (Some(name(&[&bytes])), UNPACK.things)
            }
            Origin::Recipe => (Some(name(&[CONFIG.as_bytes(), BUILD.as_bytes()])), RECIPE.things),
        };
        let cached = name.map(|name| Ok::<_, anyhow::Error>(cache()?.join(name))).transpose()?;
        let more = if cached.as_ref().is_some_and(|kernel| !kernel.is_file()) { more } else { &[] };
        if more == RECIPE.things {
            let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
            ensure!(Path::new(KERNEL_SOURCE).is_file() || is_bookworm(&system), "{ELSEWHERE}");
        }
        needs::ensure(&[step.things, BOOT.things, more].concat())?;
        let kernel = match (origin, cached) {
            (Origin::Packed(file), Some(kernel)) => once(&kernel, |work| unpack(&file, work))?,
            (Origin::Recipe, Some(kernel)) => once(&kernel, |work| build(context, work, &kernel))?,
            (Origin::Plain(kernel), _) => kernel,
            (_, None) => unreachable!("a kernel that is not used as it is has a name in the cache"),
        };
        Ok(Guest { folder: context.root.join("xtask/guest"), kernel })
    }

    /// Returns the folder with `uml-run`.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a command that starts guests by `uml-run`.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("UML_KERNEL", &self.kernel);
        command
    }

    /// Returns a command that boots a guest, which runs the script.
    pub(crate) fn boot(&self, script: &Path) -> Command {
        let mut command = Command::new(self.folder.join("uml-run"));
        command.arg(script).env("UML_KERNEL", &self.kernel);
        command
    }
}

const ELSEWHERE: &str = "no guest kernel exists, and the recipe needs Debian 12 (package linux-source-6.1), which this system is not. \
    Build a kernel on another system by xtask/guest/build, and set STENTOR_RXE to a folder that has it as `linux-uml` or `linux-uml.xz`";

fn is_bookworm(os_release: &str) -> bool {
    let has = |wanted: &str| os_release.lines().any(|line| line.replace('"', "") == wanted);
    has("ID=debian") && has("VERSION_ID=12")
}

/// Returns the origin of the kernel. A folder that `STENTOR_RXE` names must have a kernel; the folder beside the
/// repository may have one.
fn origin(named: Option<&OsStr>, beside: &Path) -> Result<Origin> {
    let folder = named.map_or(beside, Path::new);
    let (plain, packed) = (folder.join("linux-uml"), folder.join("linux-uml.xz"));
    if plain.is_file() {
        return Ok(Origin::Plain(plain.canonicalize()?));
    }
    if packed.is_file() {
        return Ok(Origin::Packed(packed.canonicalize()?));
    }
    if named.is_some() {
        bail!(
            "STENTOR_RXE names {}, which has no `linux-uml.xz` and no `linux-uml`: name a folder with a guest kernel, or unset it \
             and the kernel is built into the cache",
            folder.display()
        );
    }
    Ok(Origin::Recipe)
}

/// Returns a file name for a kernel that is made of these parts.
fn name(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).fold("linux-".to_owned(), |name, byte| name + &format!("{byte:02x}"))
}

fn cache() -> Result<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = given("XDG_CACHE_HOME").or_else(|| Some(given("HOME")?.join(".cache")));
    Ok(folder
        .context("neither XDG_CACHE_HOME nor HOME is set: there is no cache for the guest kernel")?
        .join("stentor-guest"))
}

/// Creates a file unless it exists. `make` receives an empty folder and leaves the file there as `linux-uml`.
///
/// Only one process at a time creates the file, and other processes wait for it. The file appears complete or not at
/// all. Files that an earlier process left incomplete are removed.
fn once(kernel: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    if kernel.is_file() {
        return Ok(kernel.to_owned());
    }
    let cache = kernel.parent().context("a cache")?;
    let in_cache = || format!("in the cache {}", cache.display());
    fs::create_dir_all(cache).with_context(in_cache)?;
    let lock = File::create(cache.join("lock")).with_context(in_cache)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        println!("another process makes a guest kernel {}: waiting for it", in_cache());
        flock(&lock, FlockOperation::LockExclusive).with_context(in_cache)?;
    }
    if kernel.is_file() {
        return Ok(kernel.to_owned());
    }
    for entry in fs::read_dir(cache).with_context(in_cache)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("work-")) {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    let work = cache.join(format!("work-{}", std::process::id()));
    fs::create_dir(&work).with_context(in_cache)?;
    let made = make(&work).and_then(|()| fs::rename(work.join("linux-uml"), kernel).with_context(in_cache));
    fs::remove_dir_all(&work).with_context(in_cache)?;
    made.map(|()| kernel.to_owned())
}

fn unpack(file: &Path, work: &Path) -> Result<()> {
    let kernel = File::create(work.join("linux-uml"))?;
    kernel.set_permissions(fs::Permissions::from_mode(0o755))?;
    run(Command::new("xz").arg("-dc").arg(file).stdout(Stdio::from(kernel)))
}

fn build(context: &Context, work: &Path, kernel: &Path) -> Result<()> {
    println!(
        "no guest kernel that starts here: neither STENTOR_RXE nor ../shared/rxe offers one. Building User-Mode Linux with Soft-RoCE from \
         {KERNEL_SOURCE}, once: 6 to 11 minutes on two cores, and 2 GB in {} until it is done. Later steps use the kernel {}",
        work.display(),
        kernel.display()
    );
    std::io::stdout().flush()?;
    run(Command::new(context.root.join("xtask/guest/build")).arg(KERNEL_SOURCE).arg(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_folder_has_precedence_and_must_have_a_kernel() {
        let (named, beside) = (TempDir::new(), TempDir::new());
        let of = |named: Option<&Path>| origin(named.map(Path::as_os_str), &beside);
        assert_eq!(of(None).unwrap(), Origin::Recipe);
        let error = of(Some(&named)).unwrap_err().to_string();
        assert!(error.contains("STENTOR_RXE") && error.contains(&named.display().to_string()), "{error}");
        fs::write(beside.join("linux-uml.xz"), "x").unwrap();
        assert_eq!(of(None).unwrap(), Origin::Packed(beside.join("linux-uml.xz").canonicalize().unwrap()));
        assert!(of(Some(&named)).is_err());
        fs::write(named.join("linux-uml"), "x").unwrap();
        assert_eq!(of(Some(&named)).unwrap(), Origin::Plain(named.join("linux-uml").canonicalize().unwrap()));
    }

    #[test]
    fn another_recipe_has_another_name() {
        assert_eq!(name(&[b"a", b"b"]), name(&[b"a", b"b"]));
        let names = [name(&[b"a", b"b"]), name(&[b"b", b"a"]), name(&[b"ab", b""]), name(&[b"a", b"c"])];
        assert!((1..names.len()).all(|n| !names[..n].contains(&names[n])), "{names:?}");
        assert!(names[0].starts_with("linux-") && names[0].len() == "linux-".len() + 16, "{}", names[0]);
    }

    #[test]
    fn only_debian_12_has_the_source_package() {
        assert!(is_bookworm("PRETTY_NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n"));
        assert!(!is_bookworm("VERSION_ID=\"13\"\nID=debian\n"));
        assert!(!is_bookworm("VERSION_ID=\"12\"\nID=ubuntu\n") && !is_bookworm(""));
    }

    #[test]
    fn failed_or_interrupted_build_leaves_no_kernel() {
        let cache = TempDir::new();
        let kernel = cache.join("linux-1");
        fs::create_dir(cache.join("work-1")).unwrap();
        fs::write(cache.join("work-1/linux-uml"), "half").unwrap();
        let fails = once(&kernel, |work| {
            assert!(!cache.join("work-1").exists(), "left by a process that was interrupted");
            fs::write(work.join("linux-uml"), "half")?;
            bail!("no more space")
        });
        assert_eq!(fails.unwrap_err().to_string(), "no more space");
        assert!(!kernel.exists());
        assert!(once(&kernel, |_| Ok(())).is_err(), "a build that leaves nothing");
        once(&kernel, |work| Ok(fs::write(work.join("linux-uml"), "whole")?)).unwrap();
        assert_eq!(fs::read_to_string(&kernel).unwrap(), "whole");
        once(&kernel, |_| bail!("it is there")).unwrap();
        let mut left: Vec<_> = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["linux-1", "lock"]);
    }

    #[test]
    fn second_process_waits_for_the_kernel_that_the_first_one_makes() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let cache = TempDir::new();
        let kernel = cache.join("linux-2");
        let made = AtomicU32::new(0);
        let both = || {
            once(&kernel, |work| {
                made.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(100));
                Ok(fs::write(work.join("linux-uml"), "whole")?)
            })
            .unwrap();
            assert_eq!(fs::read_to_string(&kernel).unwrap(), "whole");
        };
        std::thread::scope(|scope| [0, 1].map(|_| scope.spawn(both)).map(|thread| thread.join().unwrap()));
        assert_eq!(made.into_inner(), 1);
    }
}
