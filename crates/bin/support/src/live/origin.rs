//! One line that names the configuration and the key with which a process was started. Operators compare these lines of
//! processes that do not connect to each other.

use std::path::Path;

use sha2::{Digest, Sha256};
use stentor::ClusterConfig;
use stentor::config::KeySource;
use stentor::runtime::{ClusterRuntime, looked_in};
use stentor_fabric::ProcessId;
use stentor_host::absolute;

use crate::hex;

/// Returns the configuration file, its fingerprint and fabric, and the directories of the sockets. On fabrics between
/// hosts, also returns the address of this process and the location of its key (never the key).
pub fn origin(plan: &ClusterRuntime, process: ProcessId, directory: &Path) -> String {
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
    text + &key_in_words(config, &file).map_or(String::new(), |key| format!(", {key}"))
}

/// Returns the location of a cluster's key and its fingerprint, or `None` if the fabric needs no key or the
/// configuration names none.
pub fn key_in_words(config: &ClusterConfig, file: &Path) -> Option<String> {
    if !config.fabric().is_between_hosts() {
        return None;
    }
    let directory = file.parent().unwrap_or(Path::new(""));
    let source = match config.key()? {
        KeySource::File(key) => format!("key file {}", directory.join(key).display()),
        KeySource::Env(name) => format!("key in the environment variable {name}"),
    };
    let fingerprint = key_fingerprint(config, directory);
    Some(source + &fingerprint.map_or(String::new(), |fingerprint| format!(" (fingerprint {fingerprint})")))
}

/// Returns the fingerprint of a cluster's key, if the key can be read. A relative path is relative to `directory`.
pub fn key_fingerprint(config: &ClusterConfig, directory: &Path) -> Option<String> {
    Some(fingerprint_of(&config.key()?.read(directory).ok()?))
}

/// Returns a fingerprint with which operators compare the keys of two hosts without showing the keys: the first four
/// bytes of SHA-256 of a prefix and the key. Four bytes distinguish keys, and reveal nothing about a key that cannot be
/// guessed.
fn fingerprint_of(key: &[u8]) -> String {
    let hash = Sha256::new().chain_update(b"stentor key fingerprint 1\0").chain_update(key).finalize();
    hex(&hash[..4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_short_distinct_and_stable() {
        let [one, other] = [b"a key that is long", b"a key that is lonG"].map(|key| fingerprint_of(key));
        assert_eq!(one, "3d341f35");
        assert_ne!(one, other);
    }
}
