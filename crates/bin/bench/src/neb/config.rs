//! The parameters of the measured broadcast.

use stentor_neb::{Config, FaultModel, Mode};

use super::super::worker_spec::Neb;
use crate::args::NebMode;

/// Returns the parameters. Every process computes the same ones.
pub(super) fn config(neb: &Neb) -> Config {
    let n = neb.processes();
    let mode = match neb.mode {
        NebMode::All => Mode::All,
        NebMode::LyingSender => Mode::Quorum(FaultModel::LyingSender),
        NebMode::LyingHosts => Mode::Quorum(FaultModel::LyingHosts),
    };
    let faults = match neb.mode {
        NebMode::All => 0,
        NebMode::LyingSender => (n - 2) / 2,
        NebMode::LyingHosts => (n - 1) / 3,
    };
    let sized = Config::new(n, mode, faults);
    Config {
        window: neb.setting.window.max(1),
        payload_bytes: (neb.setting.bytes as usize).max(8),
        fast_path: neb.fast,
        signed: neb.signed,
        ..sized
    }
}
