//! A broadcast with a lying process, which sends two messages with the same number. No two processes deliver different
//! messages, and all can prove which process lied.
//!
//! `cargo run -p stentor --example broadcast_liar` runs four processes of a broadcast in this process, turned by one
//! thread. Process `d` lies in every fifth message. The others deliver the same messages from it, and obtain evidence
//! that it signed both messages.
//!
//! A process of this library cannot lie. The liar is therefore built from lower layers: the feature `unstable-core` and
//! the crate `stentor-neb`. Your own program needs neither.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use stentor::config::ClusterConfig;
use stentor::runtime::{BindConfig, ClusterFabric, ClusterRuntime, Role, ShmFabric};
use stentor::{Broadcast, Cluster, Heard, WaitMode};
use stentor_fabric::ProcessId;
use stentor_neb::{Authority, Liar, Lies};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Time limit of the example; reached only if it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the secret key of a process. Use `stentor neb key` to create real keys.
fn secret(at: u8) -> [u8; 32] {
    [at + 1; 32]
}

/// Returns the configuration. One of the four hosts may lie in any way. Messages are signed because `keys` is set.
fn configuration() -> String {
    let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let key = |(at, name)| format!("{name} = \"{}\", ", hex(Authority::public_of(&secret(at))));
    let keys: String = (0..).zip(NAMES).map(key).collect();
    let member = |(n, name)| format!("{{ id = \"{name}\", address = \"127.0.0.{n}:7101\" }}, ");
    let members: String = (1..).zip(NAMES).map(member).collect();
    format!(
        "cluster = \"liar\"\nfabric = \"shm\"\n[neb]\nmode = \"quorum\"\nfault_model = \"lying-hosts\"\nfaults = 1\n\
         keys = {{ {keys} }}\n[[group]]\nid = \"all\"\nprocess = [ {members} ]\n"
    )
}

/// Starts `d`, which sends 30 messages. In every fifth one it equivocates: `b` and `c` mostly receive another message
/// than `a`.
fn liar(directory: &Path) -> Result<Liar<ShmFabric>, Box<dyn Error>> {
    let plan = ClusterRuntime::new(ClusterConfig::parse(Path::new("cluster.toml"), &configuration())?)?;
    let neb = plan.config().neb().ok_or("the configuration has no section [neb]")?;
    let (me, salt) = (ProcessId(3), plan.config().salt());
    let bind = BindConfig { sockets: directory.join("sockets"), ..BindConfig::default() };
    let fabric = ShmFabric::start_in(&plan, Role::Broadcast(neb), me, &bind)?;
    let authority = neb.authority(salt, me, &secret(3))?;
    let lies = Lies::default().with("two-values").ok_or("no lie has this name")?;
    let others = [ProcessId(1), ProcessId(2)].into_iter().collect();
    Ok(Liar::new(fabric, *neb.config(), salt, Some(authority), lies, 30, others)?.equivocating_every(5))
}

/// A correct process, with the messages that it has delivered from the liar.
struct Honest {
    process: Broadcast,
    heard: BTreeMap<u64, Vec<u8>>,
    evidence: Option<String>,
}

impl Honest {
    fn turn(&mut self) -> Result<(), Box<dyn Error>> {
        let Honest { process, heard, evidence } = self;
        let _ = process.turn(|event| match event {
            Heard::Message { sequence, bytes, .. } => drop(heard.insert(sequence, bytes.to_vec())),
            Heard::Equivocation(lie) => {
                let proof = if lie.is_proven() { "signed both" } else { "is said to have sent both" };
                let [one, other] = lie.messages();
                *evidence = Some(format!("{} {proof} under {}: {one:?} and {other:?}", lie.sender(), lie.sequence()));
            }
            other => println!("{other:?}"),
        })?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("stentor-liar-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("cluster.toml"), configuration())?;
    let cluster = Cluster::load(directory.join("cluster.toml"))?.in_directory(directory.join("sockets"));
    let mut honest = Vec::new();
    for (at, name) in (0..).zip(NAMES).take(3) {
        let process = cluster.broadcast(name).secret(secret(at)).wait(WaitMode::BLOCK).start()?;
        honest.push(Honest { process, heard: BTreeMap::new(), evidence: None });
    }
    let mut liar = liar(&directory)?;
    let mut state = 7_u64;
    let mut chance = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let (since, mut caught) = (Instant::now(), None);
    // A process that has seen only one of the two messages receives the other one a moment later.
    while caught.is_none_or(|at: Instant| at.elapsed() < Duration::from_millis(200)) {
        liar.step(&mut chance, &mut |_| {});
        honest.iter_mut().try_for_each(Honest::turn)?;
        if caught.is_none() && honest.iter().any(|one| one.evidence.is_some()) {
            caught = Some(Instant::now());
        }
        if since.elapsed() > PATIENCE {
            return Err("no process has detected the lies in time".into());
        }
    }
    for one in &honest {
        let evidence = one.evidence.as_deref().unwrap_or("no evidence yet");
        println!("{} has delivered {} messages of d; {evidence}", one.process.name(), one.heard.len());
    }
    let heard = |sequence| honest.iter().filter_map(move |one| one.heard.get(&sequence));
    let is_split = |sequence| heard(sequence).collect::<std::collections::BTreeSet<_>>().len() > 1;
    println!("{} messages were delivered differently", (0..30).filter(|sequence| is_split(*sequence)).count());
    drop((honest, liar));
    Ok(std::fs::remove_dir_all(directory)?)
}
