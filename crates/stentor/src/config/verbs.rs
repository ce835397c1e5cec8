//! `[verbs]`: the device, and how it is used.

use std::ops::RangeInclusive;

use serde::Deserialize;
#[cfg(feature = "verbs")]
use stentor_fabric_verbs::{VerbsConfig, qp};
use toml::Spanned;

use super::error::{Misplaced, Problem};
use super::number::number;

/// The use of devices by processes. One file may serve hosts whose devices have different names: an unset device, port
/// or GID index is chosen on each host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VerbsSettings {
    /// Name of the device.
    pub device: Option<String>,
    /// Port of the device.
    pub port: Option<u8>,
    /// Index of the address in the port's GID table.
    pub gid_index: Option<u32>,
    /// NUMA node whose devices are preferred if the address allows several.
    pub numa_node: Option<u32>,
    /// Payload of a packet, in bytes.
    pub mtu: Option<u32>,
    /// Inline data that is requested, in bytes.
    pub inline_bytes: Option<u32>,
    /// Timeouts and depths. `None` if the file has no `[verbs]`: the defaults then apply.
    pub tuning: Option<Tuning>,
}

/// Timeouts and depths, as verbs encode them. These are the fields of `stentor_fabric_verbs::qp::Tuning` that the file
/// can set; they exist even if that crate is not built in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuning {
    /// Acknowledgement timeout: 4.096 µs times two to this power, 1 to 31; 0: no timeout.
    pub timeout: u8,
    /// Number of retransmissions without an acknowledgement, at most 7; on Soft-RoCE, 7 is unlimited.
    pub retries: u8,
    /// Number of retransmissions to a receiver that is not ready; 7 is unlimited.
    pub rnr_retries: u8,
    /// Delay that a sender observes when this end is not ready, encoded as 0 to 31 (12 is 0.64 ms).
    pub rnr_timer: u8,
    /// READs and atomics that each end of a queue pair may have in flight, and that it answers at a time.
    pub reads: u8,
    /// Traffic class (DSCP and ECN), by which switches recognise lossless traffic.
    pub traffic_class: u8,
    /// Service level, 0 to 15.
    pub service_level: u8,
}

impl Default for Tuning {
    /// Returns the defaults of `stentor_fabric_verbs::VerbsConfig`: a timeout of 134 ms, 6 retransmissions, 6
    /// retransmissions to receivers that are not ready, 41 ms apart, and 16 READs.
    fn default() -> Self {
        Tuning { timeout: 15, retries: 6, rnr_retries: 6, rnr_timer: 24, reads: 16, traffic_class: 0, service_level: 0 }
    }
}

#[cfg(feature = "verbs")]
impl Tuning {
    /// Applies these values to the attributes of queue pairs.
    #[must_use]
    pub fn apply(self, tuning: qp::Tuning) -> qp::Tuning {
        qp::Tuning {
            timeout: self.timeout,
            retries: self.retries,
            rnr_retries: self.rnr_retries,
            rnr_timer: self.rnr_timer,
            reads_asked: self.reads,
            reads_answered: self.reads,
            traffic_class: self.traffic_class,
            service_level: self.service_level,
            ..tuning
        }
    }
}

#[cfg(feature = "verbs")]
impl VerbsSettings {
    /// Applies the settings to a process's configuration.
    #[must_use]
    pub fn apply(&self, config: VerbsConfig) -> VerbsConfig {
        VerbsConfig {
            device: self.device.clone(),
            port: self.port,
            gid_index: self.gid_index,
            numa_node: self.numa_node,
            mtu: self.mtu,
            inline_bytes: self.inline_bytes.unwrap_or(config.inline_bytes),
            tuning: self.tuning.map_or(config.tuning, |tuning| tuning.apply(config.tuning)),
            ..config
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileVerbs {
    device: Option<Spanned<String>>,
    port: Option<Spanned<i64>>,
    gid_index: Option<Spanned<i64>>,
    numa_node: Option<Spanned<i64>>,
    mtu: Option<Spanned<i64>>,
    timeout: Option<Spanned<i64>>,
    retry_cnt: Option<Spanned<i64>>,
    rnr_retry: Option<Spanned<i64>>,
    min_rnr_timer: Option<Spanned<i64>>,
    rd_atomic: Option<Spanned<i64>>,
    traffic_class: Option<Spanned<i64>>,
    service_level: Option<Spanned<i64>>,
    inline_bytes: Option<Spanned<i64>>,
}

/// Returns a value that the file may omit.
fn optional<N>(
    key: &'static str,
    value: Option<&Spanned<i64>>,
    range: &RangeInclusive<N>,
) -> Result<Option<N>, Misplaced>
where
    N: Copy + PartialOrd + TryFrom<i64> + Into<i64>,
{
    value.map(|_| number(key, value, range, *range.start())).transpose()
}

/// Checks a device name by the kernel's rules: 1 to 63 visible ASCII characters without `/`.
fn device(name: &Spanned<String>) -> Result<String, Misplaced> {
    let text: &String = name.as_ref();
    let is_one = !text.is_empty() && text.len() < 64 && text.chars().all(|c| c.is_ascii_graphic() && c != '/');
    if is_one { Ok(text.clone()) } else { Err((name.span(), Problem::BadDevice { name: text.clone() })) }
}

/// Range of the inline data, in bytes. Less than one credit record of the multicast would be useless.
const INLINE_BYTES: RangeInclusive<u32> = 64..=4096;

pub(super) fn validate(file: &FileVerbs) -> Result<VerbsSettings, Misplaced> {
    let mtu = optional("verbs.mtu", file.mtu.as_ref(), &(256..=4096))?;
    if let (Some(value), Some(place)) = (mtu.filter(|mtu: &u32| !mtu.is_power_of_two()), &file.mtu) {
        return Err((place.span(), Problem::NotPowerOfTwo { key: "verbs.mtu", value: i64::from(value) }));
    }
    let default = Tuning::default();
    let byte = |key, value: &Option<Spanned<i64>>, most: u8, default| number(key, value.as_ref(), &(0..=most), default);
    let tuning = Tuning {
        timeout: byte("verbs.timeout", &file.timeout, 31, default.timeout)?,
        retries: byte("verbs.retry_cnt", &file.retry_cnt, 7, default.retries)?,
        rnr_retries: byte("verbs.rnr_retry", &file.rnr_retry, 7, default.rnr_retries)?,
        rnr_timer: byte("verbs.min_rnr_timer", &file.min_rnr_timer, 31, default.rnr_timer)?,
        reads: number("verbs.rd_atomic", file.rd_atomic.as_ref(), &(1_u8..=128), default.reads)?,
        traffic_class: byte("verbs.traffic_class", &file.traffic_class, u8::MAX, default.traffic_class)?,
        service_level: byte("verbs.service_level", &file.service_level, 15, default.service_level)?,
    };
    Ok(VerbsSettings {
        device: file.device.as_ref().map(device).transpose()?,
        port: optional("verbs.port", file.port.as_ref(), &(1_u8..=u8::MAX))?,
        gid_index: optional("verbs.gid_index", file.gid_index.as_ref(), &(0_u32..=255))?,
        numa_node: optional("verbs.numa_node", file.numa_node.as_ref(), &(0_u32..=1023))?,
        mtu,
        inline_bytes: optional("verbs.inline_bytes", file.inline_bytes.as_ref(), &INLINE_BYTES)?,
        tuning: Some(tuning),
    })
}

#[cfg(all(test, feature = "verbs"))]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_device() {
        let device = VerbsConfig::default().tuning;
        assert_eq!(Tuning::default().apply(device), device);
        let zero = Tuning {
            timeout: 0,
            retries: 0,
            rnr_retries: 0,
            rnr_timer: 0,
            reads: 0,
            traffic_class: 1,
            service_level: 1,
        };
        let changed = VerbsSettings { tuning: Some(zero), ..VerbsSettings::default() }.apply(VerbsConfig::default());
        assert_eq!(
            (changed.tuning.reads_asked, changed.tuning.reads_answered, changed.tuning.traffic_class),
            (0, 0, 1)
        );
        assert_eq!(changed.tuning.hop_limit, device.hop_limit);
    }
}
