//! `[neb]`: the broadcast of a group's processes.

use std::collections::BTreeMap;

use serde::Deserialize;
use stentor_fabric::ProcessId;
use stentor_fabric_net::config_file::Flaw;
use stentor_neb::{Authority, Config, FaultModel, KeyError, Mode};
use toml::Spanned;

use super::GroupConfig;
use super::error::{Misplaced, Problem};

/// The section as it is written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileNeb {
    group: Option<Spanned<String>>,
    mode: Option<Spanned<String>>,
    fault_model: Option<Spanned<String>>,
    faults: Option<Spanned<i64>>,
    window: Option<Spanned<i64>>,
    payload_bytes: Option<Spanned<i64>>,
    fast_path: Option<bool>,
    patience_ms: Option<Spanned<i64>>,
    keys: Option<Spanned<BTreeMap<String, Spanned<String>>>>,
}

/// A checked section `[neb]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NebConfig {
    group: usize,
    config: Config,
    keys: Vec<[u8; 32]>,
}

impl NebConfig {
    /// Returns the index in [`ClusterConfig::groups`](super::ClusterConfig::groups) of the group whose processes
    /// broadcast. They are numbered from 0 in the order of the file.
    #[must_use]
    pub fn group(&self) -> usize {
        self.group
    }

    /// Returns the fault model and the sizes. Values are signed if there are keys.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the public keys, by process. Empty if values are not signed.
    #[must_use]
    pub fn keys(&self) -> &[[u8; 32]] {
        &self.keys
    }

    /// Returns the keys with which a process signs and verifies values. `salt` is the cluster's.
    ///
    /// # Errors
    /// Returns [`KeyError::NotOurs`] if the secret key does not belong to the public key in the file.
    pub fn authority(&self, salt: u64, me: ProcessId, secret: &[u8; 32]) -> Result<Authority, KeyError> {
        Authority::new(salt, me, secret, &self.keys)
    }

    /// Returns the values that all processes must agree on, as numbers.
    pub(super) fn canonical(&self) -> Vec<u64> {
        let Config { mode, faults, window, payload_bytes, fast_path, .. } = self.config;
        let mode = match mode {
            Mode::All => 0,
            Mode::Quorum(FaultModel::LyingHosts) => 1,
            Mode::Quorum(FaultModel::LyingSender) => 2,
        };
        let sizes = [self.group as u64, mode, faults as u64, window.into(), payload_bytes as u64, fast_path.into()];
        let words = |key: &[u8; 32]| {
            key.chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("a chunk has 8 bytes")))
                .collect::<Vec<_>>()
        };
        sizes.into_iter().chain(self.keys.iter().flat_map(words)).collect()
    }
}

/// Checks all rules that the types of the file do not express, including the sizes against the fault model.
pub(super) fn validate(file: &Spanned<FileNeb>, groups: &[GroupConfig]) -> Result<NebConfig, Misplaced> {
    let (whole, file) = (file.span(), file.as_ref());
    let group = match &file.group {
        None if groups.len() == 1 => 0,
        None => return Err((whole, Problem::Form(Flaw::MissingKey { key: "group".to_owned() }))),
        Some(name) => groups
            .iter()
            .position(|group| group.id() == name.as_ref())
            .ok_or_else(|| (name.span(), Problem::UnknownGroup { name: name.as_ref().clone() }))?,
    };
    let mode = mode(file, &whole)?;
    let sized = Config::new(groups[group].members().len(), mode, 0);
    let number = |key, value: &Option<Spanned<i64>>, max: u64, default: u64| match value {
        None => Ok(default),
        Some(value) => u64::try_from(*value.as_ref()).ok().filter(|n| *n <= max).ok_or_else(|| {
            let (value, span) = (*value.as_ref(), value.span());
            (span, Problem::NebOutOfRange { key, value, max })
        }),
    };
    let keys = keys(file, &groups[group])?;
    let config = Config {
        faults: number("faults", &file.faults, 63, 1)? as usize,
        window: number("window", &file.window, Config::MAX_WINDOW.into(), sized.window.into())? as u32,
        payload_bytes: number("payload_bytes", &file.payload_bytes, Config::MAX_PAYLOAD_BYTES as u64, 1024)? as usize,
        patience_ns: number("patience_ms", &file.patience_ms, 3_600_000, 10_000)? * 1_000_000,
        fast_path: file.fast_path.unwrap_or(sized.fast_path),
        signed: !keys.is_empty(),
        ..sized
    };
    let config = if mode == Mode::All { Config { faults: 0, ..config } } else { config };
    let blamed = file.faults.as_ref().map_or(whole, Spanned::span);
    config.check().map_err(|error| (blamed, Problem::Neb { error }))?;
    Ok(NebConfig { group, config, keys })
}

fn mode(file: &FileNeb, whole: &std::ops::Range<usize>) -> Result<Mode, Misplaced> {
    let unknown = |key, name: &Spanned<String>, known| {
        (name.span(), Problem::NebUnknown { key, name: name.as_ref().clone(), known })
    };
    match file.mode.as_ref().map(|mode| (mode, mode.as_ref().as_str())) {
        Some((_, "all")) => return Ok(Mode::All),
        None | Some((_, "quorum")) => {}
        Some((mode, _)) => return Err(unknown("mode", mode, "`quorum` or `all`")),
    }
    match file.fault_model.as_ref().map(|model| (model, model.as_ref().as_str())) {
        Some((_, "lying-hosts")) => Ok(Mode::Quorum(FaultModel::LyingHosts)),
        Some((_, "lying-sender")) => Ok(Mode::Quorum(FaultModel::LyingSender)),
        Some((model, _)) => Err(unknown("fault_model", model, "`lying-hosts` or `lying-sender`")),
        None => Err((whole.clone(), Problem::Form(Flaw::MissingKey { key: "fault_model".to_owned() }))),
    }
}

fn keys(file: &FileNeb, group: &GroupConfig) -> Result<Vec<[u8; 32]>, Misplaced> {
    let Some(keys) = &file.keys else { return Ok(Vec::new()) };
    let (whole, keys) = (keys.span(), keys.as_ref());
    if let Some((name, key)) = keys.iter().find(|(name, _)| group.members().iter().all(|member| member.id() != *name)) {
        return Err((
            key.span(),
            Problem::NebKey { process: name.clone(), reason: "no process of the group has that name" },
        ));
    }
    let key = |member: &super::MemberConfig| {
        let refuse = |reason| Problem::NebKey { process: member.id().to_owned(), reason };
        let Some(key) = keys.get(member.id()) else { return Err((whole.clone(), refuse("it is missing"))) };
        let bytes = digits(key.as_ref()).ok_or_else(|| (key.span(), refuse("it is not 64 hexadecimal digits")))?;
        if !Authority::is_key(&bytes) {
            return Err((key.span(), refuse("it is not an Ed25519 public key")));
        }
        Ok(bytes)
    };
    group.members().iter().map(key).collect()
}

/// Decodes 64 hexadecimal digits into 32 bytes.
#[must_use]
pub fn digits(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(bytes)
}
