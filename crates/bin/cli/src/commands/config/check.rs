//! `stentor config check`: consequences of a configuration.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;
use stentor::ClusterConfig;
use stentor::config::{self, FabricKind, KeyError, OfiSettings, Role, VerbsSettings};
use stentor::runtime::Room;
use stentor_fabric_ofi::{DIRECTORY, SEGMENT_BYTES, Space, has_segments};
use stentor_support::live::{key_fingerprint, key_in_words};
use stentor_support::{Failure, Human, Output, Style, Verdict, bytes, table};

use crate::machine;

#[derive(Serialize)]
struct Checked {
    ok: bool,
    cluster: String,
    fabric: &'static str,
    /// 16 hex digits.
    fingerprint: String,
    /// Fingerprint of the cluster key, 8 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_fingerprint: Option<String>,
    /// Location and fingerprint of the cluster key, as text.
    #[serde(skip)]
    key: Option<String>,
    groups: Vec<Group>,
    processes: Vec<Process>,
    memory: Memory,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Group {
    id: String,
    processes: usize,
    majority: usize,
}

#[derive(Serialize)]
struct Process {
    /// Index of the process.
    process: u16,
    name: String,
    /// The group; `None` for a client.
    group: Option<String>,
    /// The address; `None` for a client.
    address: Option<String>,
}

#[derive(Serialize)]
struct Memory {
    processes: Vec<ProcessMemory>,
    total_bytes: u64,
    here: Here,
}

/// The memory of this machine.
#[derive(Serialize)]
struct Here {
    /// Memory that a new process can get, in bytes; `None` if unknown.
    left_bytes: Option<u64>,
    /// Memory of the machine, in bytes.
    total_bytes: Option<u64>,
    /// Limit of the tightest control group, in bytes.
    limit_bytes: Option<u64>,
    /// `true` if the largest process fits.
    fits: bool,
}

#[derive(Serialize)]
struct ProcessMemory {
    /// Size of the group; `None` for clients.
    group_size: Option<usize>,
    /// Number of processes of this kind.
    processes: u64,
    /// Memory of each, in bytes.
    bytes: u64,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    what: &'static str,
    formula: &'static str,
    count: u64,
    bytes_each: u64,
    bytes: u64,
    registered: bool,
    /// `true` if the memory is used only while a member fetches another one's state. The sum does not contain it.
    rare: bool,
}

/// Memory that `ofi_rxm` allocates. Measured in processes, because libfabric does not document it.
const RXM: &str = "not counted here: ofi_rxm of libfabric 1.17 takes 64 MiB for itself per connection, a quarter of it with \
                   FI_OFI_RXM_BUFFER_SIZE=4096 in the environment";

pub(super) fn run(file: &Path, output: Output) -> Result<Verdict, Failure> {
    let config = ClusterConfig::load(file)?;
    output.conclude(&Checked::new(&config, file), Verdict::Good)
}

impl Checked {
    fn new(config: &ClusterConfig, file: &Path) -> Self {
        let room = Room::here();
        let group = |group: &config::GroupConfig| Group {
            id: group.id().to_owned(),
            processes: group.members().len(),
            majority: group.majority(),
        };
        Checked {
            ok: true,
            cluster: config.cluster().to_owned(),
            fabric: config.fabric().name(),
            fingerprint: format!("{:016x}", config.fingerprint()),
            key_fingerprint: Some(config)
                .filter(|config| config.fabric().is_between_hosts())
                .and_then(|config| key_fingerprint(config, file.parent().unwrap_or(Path::new("")))),
            key: key_in_words(config, file),
            groups: config.groups().iter().map(group).collect(),
            processes: processes(config),
            memory: Memory::new(config, &room),
            notes: notes(config, file).into_iter().chain(shortages(config, &room)).collect(),
        }
    }
}

fn processes(config: &ClusterConfig) -> Vec<Process> {
    let table = config.process_table();
    let process = |entry: &config::ProcessEntry| {
        let (group, address) = match entry.role {
            Role::Member { group, index } => {
                let group = &config.groups()[group];
                (Some(group.id().to_owned()), Some(group.members()[index].address().to_owned()))
            }
            Role::Client { .. } => (None, None),
        };
        Process { process: entry.id.0, name: entry.name.clone(), group, address }
    };
    table.entries().iter().map(process).collect()
}

fn notes(config: &ClusterConfig, file: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    if config.key().is_some() && !config.fabric().is_between_hosts() {
        notes.push(format!("`key` is not used on {}", config.fabric()));
    }
    if config.fabric().is_between_hosts() {
        let directory = file.parent().unwrap_or(Path::new(""));
        let key = config.key().ok_or(KeyError::Unnamed).and_then(|key| key.read(directory));
        notes.extend(key.err().map(|error| format!("no process can start here: {error}")));
    }
    if config.fabric() != FabricKind::Verbs && *config.verbs() != VerbsSettings::default() {
        notes.push(format!("`[verbs]` is not used on {}", config.fabric()));
    }
    if config.fabric() == FabricKind::Ofi {
        match machine::ofi_of(config) {
            Ok(would) => {
                if would.contains(";ofi_rxm ") {
                    notes.push(RXM.to_owned());
                }
                if would.split(' ').next().is_some_and(has_segments) {
                    notes.push(segments(config));
                }
                notes.push(format!("here libfabric would use {would}"));
            }
            Err(error) => notes.push(format!("no process can start here: {error}")),
        }
    } else if *config.ofi() != OfiSettings::default() {
        notes.push(format!("`[ofi]` is not used on {}", config.fabric()));
    }
    for group in config.groups() {
        let n = group.members().len();
        if n.is_multiple_of(2) {
            let (id, less) = (group.id(), n - 1);
            notes.push(format!("group `{id}`: {n} processes survive no more failures than {less} would"));
        }
    }
    notes
}

/// Returns a description of the space that libfabric's files need on this host if all processes run here.
fn segments(config: &ClusterConfig) -> String {
    let topology = config.topology();
    let (clients, members) = (topology.clients() as u64, topology.all_members() as u64);
    // A member has a connection with each client and each other member, and a second one with each member of its own
    // group. A client has one with each member.
    let of = |size: u64| size * (clients + members - 1 + size - 1);
    let connections: u64 =
        config.groups().iter().map(|group| of(group.members().len() as u64)).sum::<u64>() + clients * members;
    let (each, all) = (bytes(SEGMENT_BYTES), bytes(connections * SEGMENT_BYTES));
    let here =
        Space::of(Path::new(DIRECTORY)).map_or("it has no limit here".to_owned(), |space| format!("there {space}"));
    format!("libfabric's shm takes {each} per connection in {DIRECTORY}, all processes together {all}; {here}")
}

/// Returns the parts of the cluster that do not fit into this machine.
fn shortages(config: &ClusterConfig, room: &Room) -> Vec<String> {
    if config.fabric() == FabricKind::Sim {
        return Vec::new();
    }
    let plan = config.memory();
    let lacks = |bytes| room.check(bytes).err();
    let of = |process: &config::ProcessMemory| {
        let shortage = lacks(process.bytes())?;
        let who = process.group_size.map_or("client".to_owned(), |size| format!("member of a group of {size}"));
        Some(format!("no {who} can start here: {shortage}; {}", shortage.remedy()))
    };
    let alone: Vec<_> = plan.processes.iter().filter_map(of).collect();
    let together = lacks(plan.total_bytes()).filter(|_| alone.is_empty() && is_on_one_host(config));
    let all = together.map(|shortage| {
        let needed = bytes(shortage.needed);
        format!(
            "all processes are on one host, and not all of them fit into this one: they need {needed}, and {}",
            shortage.room
        )
    });
    alone.into_iter().chain(all).collect()
}

fn is_on_one_host(config: &ClusterConfig) -> bool {
    let mut members = config.groups().iter().flat_map(|group| group.members());
    let is_loopback = |address: &str| address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
    !config.fabric().is_between_hosts() || members.all(|member| is_loopback(member.address()))
}

impl Memory {
    fn new(config: &ClusterConfig, room: &Room) -> Self {
        let plan = config.memory();
        let most = plan.processes.iter().map(config::ProcessMemory::bytes).max().unwrap_or(0);
        let here = Here {
            left_bytes: room.left(),
            total_bytes: room.total,
            limit_bytes: room.quota.as_ref().map(|quota| quota.limit),
            fits: room.check(most).is_ok(),
        };
        let row = |row: &config::MemoryRow| Row {
            what: row.what,
            formula: row.formula,
            count: row.count,
            bytes_each: row.bytes_each,
            bytes: row.bytes(),
            registered: row.registered,
            rare: row.rare,
        };
        let process = |process: &config::ProcessMemory| ProcessMemory {
            group_size: process.group_size,
            processes: process.processes,
            bytes: process.bytes(),
            rows: process.rows.iter().map(row).collect(),
        };
        Memory { processes: plan.processes.iter().map(process).collect(), total_bytes: plan.total_bytes(), here }
    }
}

impl Human for Checked {
    fn human(&self, style: Style) -> String {
        let mut text = format!(
            "{} cluster {} on {}, fingerprint {}{}\n\n",
            style.good("good:"),
            style.strong(&self.cluster),
            self.fabric,
            self.fingerprint,
            self.key.as_ref().map_or(String::new(), |key| format!(", {key}"))
        );
        text += &table(&["group", "processes", "majority"], self.groups.iter().map(Group::row));
        text.push('\n');
        text += &table(&["process", "name", "group", "address"], self.process_rows());
        text.push('\n');
        text += &table(&["memory", "count", "each", "all", "formula"], self.memory_rows());
        let here = self.memory.here.left_bytes.map_or(String::new(), |left| format!("; here {} are left", bytes(left)));
        let _ = writeln!(text, "all processes together: {}{here}", bytes(self.memory.total_bytes));
        for note in &self.notes {
            let _ = writeln!(text, "{} {note}", style.fair("note:"));
        }
        text
    }
}

impl Group {
    fn row(&self) -> Vec<String> {
        vec![self.id.clone(), self.processes.to_string(), self.majority.to_string()]
    }
}

impl Checked {
    fn process_rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for process in &self.processes {
            let (Some(group), Some(address)) = (&process.group, &process.address) else { continue };
            rows.push(vec![format!("p{}", process.process), process.name.clone(), group.clone(), address.clone()]);
        }
        let mut clients = self.processes.iter().filter(|process| process.group.is_none());
        if let (Some(first), last) = (clients.next(), clients.next_back()) {
            let last = last.unwrap_or(first);
            let range = |a: String, b: String| if a == b { a } else { format!("{a}–{b}") };
            let numbers = range(format!("p{}", first.process), format!("p{}", last.process));
            rows.push(vec![numbers, range(first.name.clone(), last.name.clone()), "(clients)".to_owned()]);
        }
        rows
    }

    fn memory_rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for process in &self.memory.processes {
            let who = match process.group_size {
                Some(size) => format!("each member of a group of {size}"),
                None => "each client".to_owned(),
            };
            rows.push(vec![who, String::new(), String::new(), bytes(process.bytes)]);
            rows.extend(process.rows.iter().map(|row| {
                let (what, formula) = (format!("  {}", row.what), row.formula.to_owned());
                vec![what, row.count.to_string(), bytes(row.bytes_each), bytes(row.bytes), formula]
            }));
        }
        rows
    }
}
