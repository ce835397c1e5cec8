//! From what a process was started, in one line: what an operator compares when processes do not meet.

use std::path::Path;

use stentor::config::KeySource;
use stentor::runtime::Plan;
use stentor_fabric::ProcessId;
use stentor_fabric_shm::absolute;

use super::looked_in;

/// The configuration's file, its fingerprint and fabric, where this process is, and where its key is (never the key).
pub(crate) fn origin(plan: &Plan, process: ProcessId, directory: &Path) -> String {
    let config = plan.config();
    let file = plan.file().map(absolute).unwrap_or_default();
    let (fingerprint, fabric, sockets) = (config.fingerprint(), config.fabric(), looked_in(directory));
    let mut text = format!(
        "configuration {}, fingerprint {fingerprint:016x}, fabric {fabric}, sockets in {sockets}",
        file.display()
    );
    if !fabric.is_between_hosts() {
        return text;
    }
    let mut members = config.groups().iter().flat_map(|group| group.members());
    if let Some(member) = members.nth(process.index()) {
        text += &format!(", address {}", member.address());
    }
    text + &match config.key() {
        Some(KeySource::File(key)) => {
            format!(", key file {}", file.parent().unwrap_or(Path::new("")).join(key).display())
        }
        Some(KeySource::Env(name)) => format!(", key in the environment variable {name}"),
        None => String::new(),
    }
}
