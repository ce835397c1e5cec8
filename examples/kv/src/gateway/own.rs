//! The requests that a gateway answers by itself.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use super::glob::matches;
use crate::command::{Own, names};
use crate::resp::{Version, Writer};

/// Version of Redis whose behaviour the replies follow.
const REDIS_VERSION: &str = "7.0.0";

/// Facts about a gateway, for INFO.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) clients: usize,
    pub(super) requests: u64,
    pub(super) groups: u16,
    pub(super) seconds: u64,
    pub(super) port: u16,
}

/// Facts about a TCP client, for CLIENT.
pub(super) struct Known {
    pub(super) number: u64,
    pub(super) name: Vec<u8>,
    pub(super) address: Option<SocketAddr>,
}

/// Parses HELLO. Returns the requested version, or `now` if the request names none, and the client's new name if the
/// request sets it.
pub(super) fn version_of(words: &[&[u8]], now: Version) -> Result<(Version, Option<Vec<u8>>), &'static str> {
    let version = match words.get(1).copied() {
        None => now,
        Some(b"2") => Version::Two,
        Some(b"3") => Version::Three,
        Some(_) => return Err("NOPROTO unsupported protocol version"),
    };
    let (mut name, mut words) = (None, words.iter().skip(2));
    while let Some(word) = words.next() {
        match word.to_ascii_lowercase().as_slice() {
            b"setname" => name = Some(words.next().ok_or("ERR syntax error in HELLO")?.to_vec()),
            b"auth" => return Err("ERR this store has no users and no passwords: omit AUTH"),
            _ => return Err("ERR syntax error in HELLO"),
        }
    }
    Ok((version, name))
}

pub(super) fn hello(number: u64, writer: &mut Writer<'_>) {
    writer.map(7);
    let texts = [("server", "redis"), ("version", REDIS_VERSION)];
    for (key, value) in texts {
        writer.bulk(key.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"proto");
    writer.integer(if writer.version == Version::Three { 3 } else { 2 });
    writer.bulk(b"id");
    writer.integer(number as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        writer.bulk(key.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"modules");
    writer.array(0);
}

/// Answers CLIENT. Returns the client's new name if the request sets it.
pub(super) fn client(words: &[&[u8]], known: &Known, writer: &mut Writer<'_>) -> Option<Vec<u8>> {
    let line = || {
        let address = known.address.map_or_else(String::new, |address| address.to_string());
        format!("id={} addr={address} name={} db=0", known.number, known.name.escape_ascii())
    };
    match (words[1].to_ascii_lowercase().as_slice(), words.len()) {
        (b"id", 2) => writer.integer(known.number as i64),
        (b"getname", 2) if known.name.is_empty() => writer.nil(),
        (b"getname", 2) => writer.bulk(&known.name),
        (b"setname", 3) if words[2].iter().any(|byte| !(b'!'..=b'~').contains(byte)) => {
            writer.error("ERR Client names cannot contain spaces, newlines or special characters.");
        }
        (b"setname", 3) => {
            writer.simple("OK");
            return Some(words[2].to_vec());
        }
        (b"info", 2) => writer.bulk(line().as_bytes()),
        (b"list", _) => writer.bulk(format!("{}\n", line()).as_bytes()),
        (b"setinfo", 4) | (b"no-evict" | b"no-touch", 3) => writer.simple("OK"),
        _ => writer.error("ERR unknown subcommand of CLIENT, or a wrong number of arguments"),
    }
    None
}

/// Answers a request that depends only on the gateway.
pub(super) fn answer(own: Own, words: &[&[u8]], facts: &Facts, writer: &mut Writer<'_>) {
    match own {
        Own::Ping => match words.get(1) {
            Some(text) => writer.bulk(text),
            None => writer.simple("PONG"),
        },
        Own::Echo => writer.bulk(words[1]),
        Own::Select if words[1] == b"0" => writer.simple("OK"),
        Own::Select => writer.error("ERR DB index is out of range: there is database 0"),
        Own::Time => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            writer.array(2);
            writer.bulk(now.as_secs().to_string().as_bytes());
            writer.bulk(now.subsec_micros().to_string().as_bytes());
        }
        Own::Config => config(words, writer),
        Own::Info => info(facts, writer),
        Own::Command => command(words, writer),
        // `Connection` answers the other requests.
        _ => writer.error("ERR unknown command"),
    }
}

fn config(words: &[&[u8]], writer: &mut Writer<'_>) {
    const SETTINGS: [(&str, &str); 5] = [
        ("save", ""),
        ("appendonly", "no"),
        ("databases", "1"),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
    ];
    match words[1].to_ascii_lowercase().as_slice() {
        b"get" if words.len() > 2 => {
            let wanted =
                |name: &str| words[2..].iter().any(|word| matches(&word.to_ascii_lowercase(), name.as_bytes()));
            let found: Vec<_> = SETTINGS.iter().filter(|(name, _)| wanted(name)).collect();
            writer.map(found.len());
            for (name, value) in found {
                writer.bulk(name.as_bytes());
                writer.bulk(value.as_bytes());
            }
        }
        b"resetstat" => writer.simple("OK"),
        _ => writer.error(
            "ERR CONFIG has only GET and RESETSTAT: change settings in cluster.toml or in the gateway's arguments",
        ),
    }
}

fn info(facts: &Facts, writer: &mut Writer<'_>) {
    let Facts { clients, requests, groups, seconds, port } = facts;
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nstentor_version:{version}\r\nredis_mode:standalone\r\narch_bits:64\r\ntcp_port:{port}\r\n\
         uptime_in_seconds:{seconds}\r\n\r\n# Clients\r\nconnected_clients:{clients}\r\n\r\n# Stats\r\n\
         total_commands_processed:{requests}\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n# Stentor\r\n\
         partitions:{groups}\r\n"
    );
    writer.bulk(text.as_bytes());
}

fn command(words: &[&[u8]], writer: &mut Writer<'_>) {
    match words.get(1).map(|word| word.to_ascii_lowercase()).as_deref() {
        Some(b"count") => writer.integer(names().len() as i64),
        Some(b"list") => {
            writer.array(names().len());
            names().for_each(|name| writer.bulk(name.as_bytes()));
        }
        Some(b"docs") => writer.map(0),
        // An empty reply suffices, because clients use the reply only for hints.
        None | Some(b"info") => writer.array(0),
        Some(_) => writer.error("ERR COMMAND has only COUNT, LIST, DOCS and INFO"),
    }
}
