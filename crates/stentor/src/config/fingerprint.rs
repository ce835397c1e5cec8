//! One number for everything that all processes of a cluster must agree on.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{ClusterConfig, FORMAT_VERSION};

/// Seed that distinguishes the salt from the fingerprint, which is sent in clear text.
const SALT_SEED: u64 = u64::from_le_bytes(*b"stentor1");

pub(super) fn fingerprint(config: &ClusterConfig) -> u64 {
    xxh3_64(&canonical(config))
}

pub(super) fn salt(config: &ClusterConfig) -> u64 {
    xxh3_64_with_seed(&canonical(config), SALT_SEED)
}

/// Encodes each string with its length before it, and each list with its count, so that no two configurations have the
/// same form.
fn canonical(config: &ClusterConfig) -> Vec<u8> {
    let mut form = Form(Vec::with_capacity(1024));
    form.number(u64::from(FORMAT_VERSION));
    form.text(&config.cluster);
    form.text(config.fabric.name());
    form.text(config.election.name());
    let limits = config.limits;
    for value in [
        limits.message_bytes,
        limits.window,
        u32::from(limits.clients),
        limits.ring_kib,
        limits.body_ring_kib,
        limits.reply_bytes,
        limits.reply_ring_kib,
        limits.sessions,
    ] {
        form.number(u64::from(value));
    }
    form.number(config.groups.len() as u64);
    for group in &config.groups {
        form.text(&group.id);
        form.number(group.members.len() as u64);
        group.members.iter().for_each(|member| form.text(&member.id));
    }
    // A configuration without a broadcast keeps the form, and thus the fingerprint, of versions before the broadcast.
    if let Some(neb) = &config.neb {
        neb.canonical().into_iter().for_each(|value| form.number(value));
    }
    form.0
}

struct Form(Vec<u8>);

impl Form {
    fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
}
