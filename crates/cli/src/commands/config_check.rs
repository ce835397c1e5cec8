//! `stentor config check`: what follows from a configuration.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use stentor::ClusterConfig;
use stentor::config::{self, FabricKind, KeyError, OfiSettings, Role, VerbsSettings};

use crate::failure::{Failure, Verdict};
use crate::machine;
use crate::output::{Human, Output};
use crate::style::{Style, bytes, columns};

#[derive(Serialize)]
struct Checked {
    ok: bool,
    cluster: String,
    fabric: &'static str,
    /// 16 hex digits.
    fingerprint: String,
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
    /// Index in the table.
    process: u16,
    name: String,
    /// None for a client.
    group: Option<String>,
    /// None for a client.
    address: Option<String>,
}

#[derive(Serialize)]
struct Memory {
    processes: Vec<ProcessMemory>,
    total_bytes: u64,
}

#[derive(Serialize)]
struct ProcessMemory {
    /// None for clients.
    group_size: Option<usize>,
    /// How many are alike.
    processes: u64,
    /// Of each.
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
}

/// Found by looking at processes: libfabric does not say it.
const RXM: &str = "not counted here: ofi_rxm of libfabric 1.17 takes 64 MiB for itself per connection, a quarter of it with \
                   FI_OFI_RXM_BUFFER_SIZE=4096 in the environment";

pub(super) fn run(file: &Path, output: Output) -> Result<Verdict, Failure> {
    let config = ClusterConfig::load(file)?;
    output.report(&Checked::new(&config, file))?;
    Ok(Verdict::Good)
}

impl Checked {
    fn new(config: &ClusterConfig, file: &Path) -> Self {
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
            groups: config.groups().iter().map(group).collect(),
            processes: processes(config),
            memory: Memory::new(config),
            notes: notes(config, file),
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

impl Memory {
    fn new(config: &ClusterConfig) -> Self {
        let plan = config.memory();
        let row = |row: &config::MemoryRow| Row {
            what: row.what,
            formula: row.formula,
            count: row.count,
            bytes_each: row.bytes_each,
            bytes: row.bytes(),
            registered: row.registered,
        };
        let process = |process: &config::ProcessMemory| ProcessMemory {
            group_size: process.group_size,
            processes: process.processes,
            bytes: process.bytes(),
            rows: process.rows.iter().map(row).collect(),
        };
        Memory { processes: plan.processes.iter().map(process).collect(), total_bytes: plan.total_bytes() }
    }
}

impl Human for Checked {
    fn human(&self, style: Style) -> String {
        let mut text = format!(
            "{} cluster {} on {}, fingerprint {}\n\n",
            style.good("good:"),
            style.strong(&self.cluster),
            self.fabric,
            self.fingerprint
        );
        text += &columns(&self.group_rows());
        text.push('\n');
        text += &columns(&self.process_rows());
        text.push('\n');
        text += &columns(&self.memory_rows());
        let _ = writeln!(text, "all processes together: {}", bytes(self.memory.total_bytes));
        for note in &self.notes {
            let _ = writeln!(text, "{} {note}", style.fair("note:"));
        }
        text
    }
}

fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

impl Checked {
    fn group_rows(&self) -> Vec<Vec<String>> {
        let row = |group: &Group| vec![group.id.clone(), group.processes.to_string(), group.majority.to_string()];
        std::iter::once(cells(["group", "processes", "majority"])).chain(self.groups.iter().map(row)).collect()
    }

    fn process_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![cells(["process", "name", "group", "address"])];
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
        let mut rows = vec![cells(["memory", "count", "each", "all", "formula"])];
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
