//! Validation: turns the parsed file into settings.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use stentor_fabric_roce::driver::{Chances, Mode};
use stentor_switch::registers::MOST;
use stentor_switch::{Aggregation, Attachment, Host};
use stentor_wire::Psn;
use toml::Spanned;

use super::error::{Misplaced, Problem};
use super::file::{File, FileFaults, FileHost, FileSet};
use super::{KeyPlace, MOST_SETS, Settings, StaticSet};
use crate::faults::Faults;

/// Default number of sets that the switch has room for.
const SETS: i64 = 256;
/// Default lease, in milliseconds.
const LEASE_MS: i64 = 1000;
/// Maximum lease, in milliseconds.
const MOST_LEASE_MS: u64 = 3_600_000;
/// Largest number of a queue pair or packet.
const MOST_24: u64 = 0xff_ffff;

pub(super) fn validate(file: File) -> Result<Settings, Misplaced> {
    let name_at = file.cluster.span();
    let name = file.cluster.into_inner();
    if !is_name(&name) {
        return Err((name_at, Problem::BadName { name }));
    }
    let control = match (file.control, file.key) {
        (None, None) => None,
        (Some(place), Some(key)) => Some((socket(&place)?, key_place(&key)?)),
        (Some(place), None) => return Err((place.span(), Problem::Unpaired { there: "control", missing: "key" })),
        (None, Some(key)) => return Err((key.span(), Problem::Unpaired { there: "key", missing: "control" })),
    };
    if control.is_none() && file.set.is_empty() {
        return Err((name_at, Problem::Useless));
    }
    let (forward, backward) = (address("forward", &file.forward)?, address("backward", &file.backward)?);
    if forward == backward {
        return Err((file.backward.span(), Problem::OneAddress { address: backward.to_string() }));
    }
    let room = file.sets.as_ref().map_or(Ok(SETS as u64), |sets| number("sets", sets, 1, MOST_SETS as u64))?;
    let mut static_sets: Vec<StaticSet> = Vec::new();
    for set in &file.set {
        let one = static_set(set, room)?;
        if static_sets.iter().any(|other| other.gid == one.gid) {
            return Err((set.gid.span(), Problem::Twice { what: "gid", number: one.gid.into() }));
        }
        static_sets.push(one);
    }
    Ok(Settings {
        mode: word("mode", file.mode, "`plain` or `raw`", &[("plain", Mode::Plain), ("raw", Mode::Raw)])?,
        control,
        sets: room as usize,
        aggregation: word(
            "aggregation",
            file.aggregation,
            "`exact-min` or `round-bitmap`",
            &[("exact-min", Aggregation::ExactMin), ("round-bitmap", Aggregation::RoundBitmap)],
        )?,
        check_data: file.check_data.unwrap_or(false),
        faults: file.faults.map_or(Ok(Faults::default()), |faults| self::faults(&faults))?,
        static_sets,
        ..Settings::new(&name, forward, backward)
    })
}

fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=64).contains(&name.len()) && name.as_bytes()[0].is_ascii_alphanumeric() && name.bytes().all(inner)
}

fn is_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
}

fn address(key: &'static str, text: &Spanned<String>) -> Result<Ipv4Addr, Misplaced> {
    let bad = || (text.span(), Problem::BadAddress { key, address: text.get_ref().clone() });
    text.get_ref().parse().ok().filter(|address| is_host(*address)).ok_or_else(bad)
}

fn socket(text: &Spanned<String>) -> Result<SocketAddr, Misplaced> {
    let bad = || (text.span(), Problem::BadAddress { key: "control", address: text.get_ref().clone() });
    match text.get_ref().parse().map_err(|_| bad())? {
        SocketAddr::V4(place) if is_host(*place.ip()) && place.port() > 0 => Ok(place.into()),
        _ => Err(bad()),
    }
}

fn key_place(text: &Spanned<String>) -> Result<KeyPlace, Misplaced> {
    let place = match text.get_ref().split_once(':') {
        Some(("env", name)) if !name.is_empty() && !name.contains(['=', '\0']) => KeyPlace::Env(name.to_owned()),
        Some(("file", path)) if !path.is_empty() && !path.contains('\0') => KeyPlace::File(path.into()),
        _ => return Err((text.span(), Problem::BadKey)),
    };
    Ok(place)
}

/// Returns the value of a word. The first entry of `words` is the default.
fn word<T: Copy>(
    key: &'static str,
    said: Option<Spanned<String>>,
    known: &'static str,
    words: &[(&str, T)],
) -> Result<T, Misplaced> {
    let Some(said) = said else { return Ok(words[0].1) };
    let span = said.span();
    let said = said.into_inner();
    let found = words.iter().find(|(word, _)| *word == said).map(|(_, value)| *value);
    found.ok_or((span, Problem::UnknownWord { key, word: said, known }))
}

fn number(key: &'static str, said: &Spanned<i64>, min: u64, max: u64) -> Result<u64, Misplaced> {
    let outside = || (said.span(), Problem::OutOfRange { key, value: said.get_ref().to_string(), min, max });
    u64::try_from(*said.get_ref()).ok().filter(|value| (min..=max).contains(value)).ok_or_else(outside)
}

fn chance(key: &'static str, said: Option<&Spanned<f64>>) -> Result<f64, Misplaced> {
    let Some(said) = said else { return Ok(0.0) };
    let value = *said.get_ref();
    let outside = (said.span(), Problem::OutOfRange { key, value: value.to_string(), min: 0, max: 1 });
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(outside) }
}

fn faults(file: &FileFaults) -> Result<Faults, Misplaced> {
    let delay_us = file.delay_us.as_ref().map_or(Ok(0), |said| number("delay_us", said, 0, 1_000_000))?;
    let links = Chances {
        drop: chance("drop_chance", file.drop_chance.as_ref())?,
        duplicate: chance("duplicate_chance", file.duplicate_chance.as_ref())?,
        reorder: chance("reorder_chance", file.reorder_chance.as_ref())?,
        corrupt: chance("corrupt_chance", file.corrupt_chance.as_ref())?,
        delay: delay_us * 1000,
    };
    let loop_drop = chance("loop_drop_chance", file.loop_drop_chance.as_ref())?;
    let seed = file.seed.as_ref().map_or(Ok(1), |said| number("seed", said, 0, i64::MAX as u64))?;
    Ok(Faults { links, loop_drop, seed })
}

fn static_set(file: &FileSet, room: u64) -> Result<StaticSet, Misplaced> {
    let gid = number("gid", &file.gid, 0, room - 1)?;
    let lease_ms =
        file.lease_ms.as_ref().map_or(Ok(LEASE_MS as u64), |said| number("lease_ms", said, 1, MOST_LEASE_MS))?;
    let count = file.host.get_ref().len();
    if !(1..=MOST).contains(&count) {
        return Err((file.host.span(), Problem::Hosts { gid, count }));
    }
    let mut hosts: Vec<Option<Host>> = Vec::new();
    for host in file.host.get_ref() {
        let rank = number("rank", &host.rank, 0, MOST as u64 - 1)? as usize;
        if hosts.len() <= rank {
            hosts.resize(rank + 1, None);
        }
        if hosts[rank].replace(static_host(host)?).is_some() {
            return Err((host.rank.span(), Problem::Twice { what: "rank", number: rank as u64 }));
        }
    }
    Ok(StaticSet { gid: gid as u16, lease: Duration::from_millis(lease_ms), hosts })
}

fn static_host(file: &FileHost) -> Result<Host, Misplaced> {
    let ip = address("address", &file.address)?;
    let attachment = |(key, qpn): (&'static str, &Spanned<i64>), (psn_key, psn): (&'static str, &Spanned<i64>)| {
        let qpn = number(key, qpn, 0, MOST_24)? as u32;
        let first_psn = Psn::new(number(psn_key, psn, 0, MOST_24)? as u32);
        Ok(Attachment { ip, qpn, first_psn })
    };
    Ok(Host {
        sends: attachment(("sends_qpn", &file.sends_qpn), ("sends_psn", &file.sends_psn))?,
        receives: attachment(("receives_qpn", &file.receives_qpn), ("receives_psn", &file.receives_psn))?,
    })
}
