//! `[switch]`: the switch that copies the writes of clients and of senders of a broadcast.

use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use serde::Deserialize;
use stentor_switch_host::SwitchConfig;
use toml::Spanned;

use super::address;
use super::error::{Misplaced, Problem};
use super::number::number;

/// Range of the lease of a fan-out set, for which a silent sender may hold the set, in milliseconds.
const LEASE_MS: std::ops::RangeInclusive<u32> = 100..=600_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSwitch {
    control: Spanned<String>,
    lease_ms: Option<Spanned<i64>>,
}

pub(super) fn validate(file: &FileSwitch) -> Result<SwitchConfig, Misplaced> {
    let refused = |problem| (file.control.span(), problem);
    let text = file.control.as_ref();
    address::check(text).map_err(refused)?;
    let named = Problem::BadAddress { address: text.clone(), reason: "the switch needs an IPv4 address, not a name" };
    let control: SocketAddrV4 = text.parse().map_err(|_| refused(named))?;
    let config = SwitchConfig::new(SocketAddr::V4(control));
    let default = config.lease.as_millis() as u32;
    let lease = number("switch.lease_ms", file.lease_ms.as_ref(), &LEASE_MS, default)?;
    Ok(SwitchConfig { lease: Duration::from_millis(lease.into()), ..config })
}
