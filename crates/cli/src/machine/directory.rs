//! The directory where the processes of one user find each other's sockets.

use std::fs::{self, DirBuilder};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::process::getuid;

use super::Finding;

/// `$XDG_RUNTIME_DIR/stentor`, else `/tmp/stentor-<uid>`.
pub(crate) fn runtime_directory() -> PathBuf {
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    match given {
        Some(path) => path.join("stentor"),
        None => PathBuf::from(format!("/tmp/stentor-{}", getuid().as_raw())),
    }
}

pub(super) fn finding() -> Finding {
    inspect(&runtime_directory())
}

fn inspect(path: &Path) -> Finding {
    let what = "runtime directory";
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_dir() => Finding::missing(
            what,
            format!("{shown} is not a directory"),
            format!("remove {shown}, or set XDG_RUNTIME_DIR to a directory of yours"),
        ),
        Ok(found) if found.uid() != getuid().as_raw() => Finding::missing(
            what,
            format!("{shown} belongs to user {}", found.uid()),
            "set XDG_RUNTIME_DIR to a directory of yours",
        ),
        Ok(found) if found.mode() & 0o777 != 0o700 => Finding::missing(
            what,
            format!("{shown} has mode {:04o}: others get in", found.mode() & 0o777),
            format!("chmod 0700 {shown}"),
        ),
        Ok(_) => match probe(path) {
            // Its last user has just removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => tried(what, path, probe_beside(path)),
            result => tried(what, path, result),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => tried(what, path, probe_beside(path)),
        Err(error) => tried(what, path, Err(error)),
    }
}

fn tried(what: &'static str, path: &Path, result: Result<(), Error>) -> Finding {
    let shown = path.display();
    match result {
        Ok(()) => Finding::ok(what, format!("{shown}, for this user only")),
        Err(error) => Finding::missing(
            what,
            format!("{shown}: {error}"),
            "set XDG_RUNTIME_DIR to a directory that this user may write to, with a path below 60 characters",
        ),
    }
}

/// Probes a directory beside it, made and removed for that: the real one may come and go meanwhile.
fn probe_beside(path: &Path) -> Result<(), Error> {
    let beside = path.with_extension(format!("doctor.{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&beside)?;
    let result = probe(&beside);
    fs::remove_dir(&beside).and(result)
}

/// Listens on a socket in there for a moment.
fn probe(path: &Path) -> Result<(), Error> {
    let socket = path.join(format!("doctor.{}.sock", std::process::id()));
    let listening = UnixListener::bind(&socket).map(drop);
    match listening {
        Ok(()) => fs::remove_file(&socket),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::State;
    use super::*;

    /// A directory of its own for each test, gone at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("stentor-dir-{name}-{}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&path).expect("a temporary directory");
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_directory_for_others_is_refused_and_one_of_our_own_is_good() {
        let scratch = Scratch::new("mode");
        assert_eq!(inspect(&scratch.0).state, State::Ok);
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
        let finding = inspect(&scratch.0);
        assert_eq!(finding.state, State::Missing);
        assert!(finding.detail.contains("mode 0755"), "{finding:?}");
    }

    #[test]
    fn a_symbolic_link_or_a_file_is_refused() {
        let scratch = Scratch::new("link");
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink(&scratch.0, &link).unwrap();
        assert!(inspect(&link).detail.contains("not a directory"));
        let file = scratch.0.join("file");
        fs::write(&file, "").unwrap();
        assert!(inspect(&file).detail.contains("not a directory"));
    }

    #[test]
    fn probing_leaves_nothing_behind() {
        let scratch = Scratch::new("rest");
        let absent = scratch.0.join("absent");
        assert_eq!(inspect(&absent).state, State::Ok);
        assert!(!absent.exists());
        assert_eq!(inspect(&scratch.0).state, State::Ok);
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let scratch = Scratch::new("long");
        let long = scratch.0.join("x".repeat(120));
        assert_eq!(inspect(&long).state, State::Missing);
    }
}
