//! The shared-memory fabric, tested as a whole: its directories, its socket, its memory, and the janitor.

use std::path::{Path, PathBuf};

use stentor_fabric::{Fabric, OsError, ProcessId, Purpose, RegionSpec};
use stentor_fabric_shm::{ShmConfig, ShmFabric, StartError};
use stentor_host::default_directory;
use stentor_support::unique;

use super::Finding;

/// Returns the directory where the processes of one user find each other's sockets.
pub(crate) fn runtime_directory() -> PathBuf {
    default_directory()
}

pub(super) fn finding() -> Finding {
    inspect(&runtime_directory())
}

/// Size of the region that the test registers, larger than a page.
const REGION_BYTES: u64 = 64 << 10;

/// Starts a process of a cluster that only this test uses, registers memory, and ends the process.
fn inspect(directory: &Path) -> Finding {
    let what = "shared-memory process";
    let shown = directory.display();
    let me = ProcessId(0);
    let cluster = format!("doctor-{:08x}", unique::number() as u32);
    let config = ShmConfig { directory: directory.to_owned(), ..ShmConfig::new(&cluster, me, "doctor", 1) };
    match ShmFabric::start(config) {
        Ok(mut fabric) => {
            let spec = RegionSpec { purpose: Purpose(0), writer: me, bytes: REGION_BYTES };
            match fabric.register(spec) {
                Ok(_) => Finding::ok(what, format!("one was started and stopped; sockets in {shown}")),
                Err(error) => {
                    let remedy = OsError::remedy_in(&error).unwrap_or(REGISTER_REMEDY);
                    Finding::missing(what, error.to_string(), remedy)
                }
            }
        }
        Err(error) => Finding::missing(what, error.to_string(), start_remedy(&error, directory)),
    }
}

fn start_remedy(error: &StartError, directory: &Path) -> String {
    if let Some(remedy) = OsError::remedy_in(error) {
        return remedy.to_owned();
    }
    match error {
        StartError::Directory { .. } => {
            let shown = directory.display();
            format!("make {shown} a directory of yours (chmod 0700), or set XDG_RUNTIME_DIR to one of yours")
        }
        StartError::PathTooLong { .. } => "set XDG_RUNTIME_DIR to a directory with a shorter path".to_owned(),
        StartError::Janitor(_) => "allow more processes (ulimit -u)".to_owned(),
        _ => "allow this process Unix sockets, file locks and random numbers (sandbox, limits)".to_owned(),
    }
}

const REGISTER_REMEDY: &str = "allow this process memfd_create, mmap and more memory (sandbox, limits)";

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use stentor_testutil::TempDir;

    use super::super::State;
    use super::*;

    #[test]
    fn directory_open_to_others_is_refused_with_a_remedy() {
        let scratch = TempDir::new();
        fs::set_permissions(&scratch, Permissions::from_mode(0o755)).unwrap();
        let finding = inspect(&scratch);
        assert_eq!(finding.state, State::Missing);
        assert!(finding.detail.contains("0755"), "{finding:?}");
        assert!(finding.remedy.unwrap().contains("chmod 0700"));
    }

    #[test]
    fn a_symbolic_link_or_a_file_is_refused() {
        let scratch = TempDir::new();
        let link = scratch.join("link");
        std::os::unix::fs::symlink(&scratch, &link).unwrap();
        assert!(inspect(&link).detail.contains("not a directory"));
        let file = scratch.join("file");
        fs::write(&file, "").unwrap();
        assert!(inspect(&file).detail.contains("not a directory"));
    }

    #[test]
    fn probe_leaves_no_files() {
        let scratch = TempDir::new();
        let absent = scratch.join("absent");
        let finding = inspect(&absent);
        assert_eq!(finding.state, State::Ok, "{finding:?}");
        assert!(!absent.exists());
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let scratch = TempDir::new();
        let finding = inspect(&scratch.join("x".repeat(120)));
        assert_eq!(finding.state, State::Missing);
        assert!(finding.remedy.unwrap().contains("shorter path"));
    }
}
