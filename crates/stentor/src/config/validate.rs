//! Turns the file as written into a valid configuration.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use stentor_fabric_net::config_file::Position;
use toml::Spanned;

use stentor_multicast::{CLIENT_TIMEOUT, PhysicalClock, TotalLoss};

use super::error::{First, Misplaced, Problem};
use super::file::{Election, File, FileLimits, Group, Process};
use super::limits::{
    BACKLOG_MIB, BODY_RING_KIB, CLIENT_TIMEOUT_MS, CLIENTS, CLOCK_BOUND_MS, EXPEL_MS, Limits, MAX_GROUP_PROCESSES,
    MAX_GROUPS, MESSAGE_BYTES, OBSERVED_MIB, REPLY_BYTES, REPLY_RING_KIB, RING_KIB, SESSIONS, SLOWED_PERCENT,
    SNAPSHOT_MIB, TIMEOUT_MS, WINDOW,
};
use super::number::number;
use super::{
    ClusterConfig, ElectionKind, ElectionTimes, FabricKind, GroupConfig, KeySource, MemberConfig, OfiSettings,
    VerbsSettings, address, names, neb, ofi, switch, verbs,
};

/// Checks all rules that the types of the file do not express.
pub(super) fn validate(file: File, text: &str) -> Result<ClusterConfig, Misplaced> {
    at(&file.cluster, names::check("cluster", file.cluster.as_ref()))?;
    let fabric = at(&file.fabric, fabric(file.fabric.as_ref()))?;
    let key = file.key.map(|key| at(&key, KeySource::parse(key.as_ref()).ok_or(Problem::BadKey))).transpose()?;
    let election = file.election.as_ref().map_or(Ok(ElectionKind::Heartbeat), election)?;
    let times = file.election.as_ref().map_or(Ok(ElectionTimes::default()), times)?;
    let ms = number(
        "client_timeout_ms",
        file.client_timeout_ms.as_ref(),
        &CLIENT_TIMEOUT_MS,
        CLIENT_TIMEOUT.as_millis() as u32,
    )?;
    let client_timeout = Duration::from_millis(u64::from(ms));
    let total_loss =
        file.total_loss.as_ref().map_or(Ok(TotalLoss::default()), |word| at(word, total_loss(word.as_ref())))?;
    let bound = file.limits.clock_bound_ms.as_ref();
    let ms = number("limits.clock_bound_ms", bound, &CLOCK_BOUND_MS, PhysicalClock::BOUND.as_millis() as u32)?;
    let clock_bound = Duration::from_millis(u64::from(ms));
    let limits = limits(&file.limits)?;
    let groups = groups(file.group, text, fabric)?;
    let neb = file.neb.as_ref().map(|neb| neb::validate(neb, &groups)).transpose()?;
    let verbs = file.verbs.as_ref().map_or(Ok(VerbsSettings::default()), verbs::validate)?;
    let ofi = file.ofi.as_ref().map_or(Ok(OfiSettings::default()), ofi::validate)?;
    let switch = file.switch.as_ref().map(switch::validate).transpose()?;
    let cluster = file.cluster.into_inner();
    Ok(ClusterConfig {
        cluster,
        fabric,
        key,
        client_timeout,
        total_loss,
        clock_bound,
        election,
        times,
        limits,
        groups,
        neb,
        verbs,
        ofi,
        switch,
    })
}

fn at<T, V>(value: &Spanned<T>, result: Result<V, Problem>) -> Result<V, Misplaced> {
    result.map_err(|problem| (value.span(), problem))
}

fn total_loss(word: &str) -> Result<TotalLoss, Problem> {
    match word {
        "begin" => Ok(TotalLoss::Begin),
        "refuse" => Ok(TotalLoss::Refuse),
        _ => Err(Problem::UnknownTotalLoss { name: word.to_owned() }),
    }
}

fn fabric(name: &str) -> Result<FabricKind, Problem> {
    match name {
        "shm" => Ok(FabricKind::Shm),
        "roce" => Ok(FabricKind::Roce),
        "verbs" => Ok(FabricKind::Verbs),
        "ofi" => Ok(FabricKind::Ofi),
        "sim" => Ok(FabricKind::Sim),
        _ if name.starts_with("ofi:") => Err(Problem::FabricProvider { name: name.to_owned() }),
        _ => Err(Problem::UnknownFabric { name: name.to_owned() }),
    }
}

fn election(election: &Election) -> Result<ElectionKind, Misplaced> {
    let name = election.kind.as_ref().clone();
    let kind = match name.as_str() {
        "heartbeat" => Ok(ElectionKind::Heartbeat),
        "zookeeper" => Err(Problem::AbsentElection { name }),
        _ => Err(Problem::UnknownElection { name }),
    };
    at(&election.kind, kind)
}

fn times(election: &Election) -> Result<ElectionTimes, Misplaced> {
    let default = ElectionTimes::default();
    let ms = |time: Duration| time.as_millis() as u32;
    let max = number("election.timeout_max_ms", election.timeout_max_ms.as_ref(), &TIMEOUT_MS, ms(default.max))?;
    let range = *TIMEOUT_MS.start()..=max;
    let min = number("election.timeout_min_ms", election.timeout_min_ms.as_ref(), &range, ms(default.min).min(max))?;
    let time = |ms| Duration::from_millis(u64::from(ms));
    Ok(ElectionTimes { min: time(min), max: time(max) })
}

fn limits(file: &FileLimits) -> Result<Limits, Misplaced> {
    let default = Limits::default();
    let window = number("limits.window", file.window.as_ref(), &WINDOW, default.window)?;
    if !window.is_power_of_two() {
        let span = file.window.as_ref().map_or(0..0, Spanned::span);
        return Err((span, Problem::NotPowerOfTwo { key: "limits.window", value: i64::from(window) }));
    }
    Ok(Limits {
        message_bytes: number(
            "limits.message_bytes",
            file.message_bytes.as_ref(),
            &MESSAGE_BYTES,
            default.message_bytes,
        )?,
        window,
        clients: number("limits.clients", file.clients.as_ref(), &CLIENTS, default.clients)?,
        ring_kib: number("limits.ring_kib", file.ring_kib.as_ref(), &RING_KIB, default.ring_kib)?,
        body_ring_kib: number(
            "limits.body_ring_kib",
            file.body_ring_kib.as_ref(),
            &BODY_RING_KIB,
            default.body_ring_kib,
        )?,
        reply_bytes: number("limits.reply_bytes", file.reply_bytes.as_ref(), &REPLY_BYTES, default.reply_bytes)?,
        sessions: number("limits.sessions", file.sessions.as_ref(), &SESSIONS, default.sessions)?,
        reply_ring_kib: number(
            "limits.reply_ring_kib",
            file.reply_ring_kib.as_ref(),
            &REPLY_RING_KIB,
            default.reply_ring_kib,
        )?,
        snapshot_mib: number("limits.snapshot_mib", file.snapshot_mib.as_ref(), &SNAPSHOT_MIB, default.snapshot_mib)?,
        backlog_mib: number("limits.backlog_mib", file.backlog_mib.as_ref(), &BACKLOG_MIB, default.backlog_mib)?,
        slowed_percent: number(
            "limits.slowed_percent",
            file.slowed_percent.as_ref(),
            &SLOWED_PERCENT,
            default.slowed_percent,
        )?,
        expel_ms: number("limits.expel_ms", file.expel_ms.as_ref(), &EXPEL_MS, default.expel_ms)?,
        observed_mib: number("limits.observed_mib", file.observed_mib.as_ref(), &OBSERVED_MIB, default.observed_mib)?,
    })
}

fn groups(groups: Vec<Group>, text: &str, fabric: FabricKind) -> Result<Vec<GroupConfig>, Misplaced> {
    if groups.is_empty() {
        return Err((text.trim_end().len()..text.len(), Problem::NoGroups));
    }
    if groups.len() > MAX_GROUPS {
        return Err((groups[MAX_GROUPS].id.span(), Problem::TooManyGroups { count: groups.len() }));
    }
    let mut seen = Seen {
        text,
        first: HashMap::new(),
        family: None,
        hosts: fabric.is_between_hosts(),
        apart: fabric == FabricKind::Roce,
    };
    groups.into_iter().map(|group| self::group(group, &mut seen)).collect()
}

fn group(group: Group, seen: &mut Seen<'_>) -> Result<GroupConfig, Misplaced> {
    at(&group.id, names::check("group id", group.id.as_ref()))?;
    seen.once("group id", &group.id)?;
    let name = group.id.into_inner();
    let count = group.process.as_ref().len();
    if count == 0 {
        return Err((group.process.span(), Problem::EmptyGroup { group: name }));
    }
    if count > MAX_GROUP_PROCESSES {
        return Err((group.process.span(), Problem::TooManyProcesses { group: name, count }));
    }
    let members = group.process.into_inner().into_iter().map(|process| member(process, seen));
    Ok(GroupConfig { members: members.collect::<Result<_, _>>()?, id: name })
}

fn member(process: Process, seen: &mut Seen<'_>) -> Result<MemberConfig, Misplaced> {
    at(&process.id, names::check("process id", process.id.as_ref()))?;
    if names::is_client(process.id.as_ref()) {
        return Err((process.id.span(), Problem::ClientName { name: process.id.into_inner() }));
    }
    seen.once("process id", &process.id)?;
    at(&process.address, address::check(process.address.as_ref()))?;
    seen.once_as("address", &process.address, address::canonical(process.address.as_ref()))?;
    seen.one_family(&process.address)?;
    if seen.apart {
        let host = address::host(process.address.as_ref());
        seen.once_as("IP address (RoCEv2 has one port)", &Spanned::new(process.address.span(), host.clone()), host)?;
    }
    Ok(MemberConfig { id: process.id.into_inner(), address: process.address.into_inner() })
}

/// The names and addresses so far, and their places in the text.
struct Seen<'a> {
    text: &'a str,
    first: HashMap<(&'static str, String), Range<usize>>,
    /// `true` if processes reach each other by their addresses.
    hosts: bool,
    /// `true` if every process needs its own IP address: RoCEv2's port is the same for all.
    apart: bool,
    /// Place of the first IP address, and whether it is IPv4.
    family: Option<(Range<usize>, bool)>,
}

impl Seen<'_> {
    /// Refuses a mix of IPv4 and IPv6 between hosts, whose processes would wait for each other forever. Host names are
    /// resolved at start.
    fn one_family(&mut self, address: &Spanned<String>) -> Result<(), Misplaced> {
        let Some(socket) = address.as_ref().parse::<SocketAddr>().ok().filter(|_| self.hosts) else { return Ok(()) };
        let (first, v4) = self.family.get_or_insert((address.span(), socket.is_ipv4()));
        if *v4 == socket.is_ipv4() {
            return Ok(());
        }
        let first = First::Line(Position::of(self.text, first.start).line);
        Err((address.span(), Problem::Families { address: address.as_ref().clone(), first }))
    }

    fn once(&mut self, what: &'static str, name: &Spanned<String>) -> Result<(), Misplaced> {
        self.once_as(what, name, name.as_ref().clone())
    }

    /// Like [`once`](Self::once), for values with several spellings; `key` is the spelling that is compared.
    fn once_as(&mut self, what: &'static str, name: &Spanned<String>, key: String) -> Result<(), Misplaced> {
        match self.first.insert((what, key), name.span()) {
            None => Ok(()),
            Some(first) => {
                let first = First::Line(Position::of(self.text, first.start).line);
                Err((name.span(), Problem::Duplicate { what, name: name.as_ref().clone(), first }))
            }
        }
    }
}
