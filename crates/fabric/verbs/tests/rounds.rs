//! Opens a thousand connections between two processes and breaks them in every way. Then kills peers in every state of
//! a connection. Neither may leave objects in the kernel or at the survivor. Ignored by default: see `conformance.rs`.

mod kernel;
mod processes;
mod survivor;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kernel::{resources, settled};
use processes::addresses;
use stentor_fabric::{Access, Fabric, QpState};
use survivor::{End, PATIENCE, PEER, SURVIVOR};

/// Number of lives of the peer that are measured, after a first one; the survivor has only one life. In each life, the
/// ends connect, and reconnect after each break.
const LIVES: usize = 60;
/// Number of breaks of each kind in a life.
const TIMES: usize = 4;
const CONNECTIONS: usize = LIVES * (1 + TIMES * BREAKS.len());
/// Number of lives between two checks of the objects that exist in the kernel and at the survivor.
const LOOK: usize = 10;

/// Ways to break a connection while both processes are running.
#[derive(Clone, Copy, Debug)]
enum Break {
    /// Both ends use a wrong key.
    Both,
    /// The survivor uses a wrong key while the peer has posted receives and writes.
    Survivor,
    /// The survivor revokes its grant while the peer writes.
    Fenced,
    /// Both ends use a wrong key while their send queues are almost full of writes.
    Full,
}

const BREAKS: [Break; 4] = [Break::Both, Break::Survivor, Break::Fenced, Break::Full];

fn break_it(survivor: &mut End, peer: &mut End, how: Break) {
    match how {
        Break::Both => [survivor, peer].into_iter().for_each(End::write_with_wrong_key),
        Break::Survivor => {
            peer.post_receives();
            peer.flood(usize::MAX);
            survivor.write_with_wrong_key();
        }
        Break::Fenced => {
            peer.flood(4);
            survivor.fabric.revoke(survivor.region, PEER).unwrap();
            // The peer still uses the revoked grant.
            peer.flood(4);
            survivor::until(survivor, Some(peer), "the peer knows of the revocation", |_, peer| {
                peer.is_some_and(|peer| peer.target().is_none())
            });
            survivor.fabric.grant(survivor.region, PEER, Access::Write).unwrap();
        }
        Break::Full => {
            for end in [survivor, peer] {
                // Leave room in the queue for the write with the wrong key, and for an earlier request whose completion
                // has not been polled yet.
                end.flood(survivor::DEPTH as usize - 2);
                end.write_with_wrong_key();
            }
        }
    }
}

/// Runs one life of the peer: starts it, breaks the connection in all ways, and drops the peer. In every third life,
/// writes are in flight when the peer is dropped.
fn one_life(survivor: &mut End, addresses: &[Option<SocketAddr>], life: usize) {
    let mut peer = End::new(PEER, addresses);
    survivor::connect(survivor, &mut peer);
    survivor::write_both_ways(survivor, &mut peer);
    for how in BREAKS.repeat(TIMES) {
        break_it(survivor, &mut peer, how);
        survivor::until(survivor, Some(&mut peer), &format!("broken, {how:?}"), |survivor, peer| {
            survivor.state() == QpState::Error && peer.is_some_and(|peer| peer.state() == QpState::Error)
        });
        peer.reset_if_broken();
        survivor.reset_if_broken();
        survivor::connect(survivor, &mut peer);
        survivor::write_both_ways(survivor, &mut peer);
    }
    if life.is_multiple_of(3) {
        peer.flood(usize::MAX);
        survivor.flood(usize::MAX);
    }
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn a_thousand_connections_leave_no_objects_behind() {
    let before = resources();
    let (addresses, begin) = (addresses(2), Instant::now());
    let mut survivor = End::new(SURVIVOR, &addresses);
    // In the first life, the survivor creates the objects that it keeps for a peer.
    one_life(&mut survivor, &addresses, 0);
    survivor.wait_until_disconnected();
    let (alone, files) = (settled(None), survivor::open_files());
    let mut took = Vec::with_capacity(LIVES);
    for life in 1..=LIVES {
        let since = Instant::now();
        one_life(&mut survivor, &addresses, life);
        survivor.wait_until_disconnected();
        took.push(since.elapsed());
        if life % LOOK == 0 {
            assert_eq!(settled(Some(&alone)), alone, "after {life} lives");
            assert_eq!(survivor::open_files(), files, "after {life} lives");
        }
    }
    took.sort_unstable();
    println!(
        "{CONNECTIONS} connections made and ended in {:.1} s; a peer's life of {} of them {:?} (median), {:?} at most; {files} files \
         open; held by who stays, now as after the first life:\n{alone}",
        begin.elapsed().as_secs_f64(),
        CONNECTIONS / LIVES,
        took[LIVES / 2],
        took[LIVES - 1],
    );
    const { assert!(CONNECTIONS >= 1000) };
    assert_ne!(alone, before, "the survivor has no objects for the peer");
    drop(survivor);
    assert_eq!(settled(Some(&before)), before);
}

/// States in which peers are killed. A peer in a state whose name ends in -ing repeats an operation until it is killed.
const STAGES: [&str; 9] =
    ["started", "unmet", "ready", "receives posted", "broken", "writing", "fencing", "resetting", "starting"];
const KILLS: usize = 6 * STAGES.len();
const STAGE: &str = "STENTOR_VERBS_PEER";
const PORT: &str = "STENTOR_VERBS_PORT";

/// The program of the peers to kill. It does nothing if it is not started by the other test.
#[test]
#[ignore = "a part of `peers_killed_in_every_state_leave_no_objects_behind`"]
fn a_peer_that_is_killed() {
    let Ok(stage) = std::env::var(STAGE) else { return };
    let first: u16 = std::env::var(PORT).unwrap().parse().unwrap();
    let ip = processes::ADDRESS.parse().unwrap();
    let addresses: Vec<_> = (0..2).map(|n| Some(SocketAddr::new(ip, first + n))).collect();
    let mut peer = match stage.as_str() {
        "started" | "starting" => None,
        "unmet" => Some(End::on_service(PEER, &addresses, survivor::NOBODYS)),
        _ => Some(End::new(PEER, &addresses)),
    };
    let mut alone = (stage == "started").then(|| processes::start(PEER, &addresses, |_, _| {}));
    if let Some(peer) = peer.as_mut().filter(|_| stage != "unmet") {
        peer.drive_until("ready", |peer| peer.state() == QpState::Ready && peer.target().is_some());
        match stage.as_str() {
            "receives posted" => peer.post_receives(),
            "broken" => {
                peer.write_with_wrong_key();
                peer.drive_until("broken", |peer| peer.state() == QpState::Error);
            }
            _ => {}
        }
    }
    println!("reached");
    loop {
        match (stage.as_str(), &mut peer) {
            ("starting", _) => drop(End::new(PEER, &addresses)),
            ("writing", Some(peer)) => peer.flood(usize::MAX),
            ("fencing", Some(peer)) => {
                peer.fabric.revoke(peer.region, SURVIVOR).unwrap();
                peer.fabric.grant(peer.region, SURVIVOR, Access::Write).unwrap();
            }
            ("resetting", Some(peer)) => match peer.state() {
                QpState::Ready => peer.write_with_wrong_key(),
                QpState::Error => drop(peer.fabric.reset(peer.qp)),
                QpState::Connecting => {}
            },
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
        if let Some(peer) = &mut peer {
            peer.pump();
        }
        if let Some(alone) = &mut alone {
            while alone.next_event().is_some() {}
        }
    }
}

/// Starts a peer. Returns it with a flag that becomes `true` when the peer has reached its state.
fn peer(stage: &str, first: u16) -> (Child, Arc<AtomicBool>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "a_peer_that_is_killed", "--nocapture"])
        .env(STAGE, stage)
        .env(PORT, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (reached, output) = (Arc::new(AtomicBool::new(false)), child.stdout.take().unwrap());
    let told = Arc::clone(&reached);
    std::thread::spawn(move || {
        let is_it = BufReader::new(output).lines().map_while(Result::ok).any(|line| line.ends_with("reached"));
        told.store(is_it, Ordering::SeqCst);
    });
    (child, reached)
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn peers_killed_in_every_state_leave_no_objects_behind() {
    let before = resources();
    let (addresses, begin) = (addresses(2), Instant::now());
    let first = addresses[0].unwrap().port();
    let mut survivor = End::new(SURVIVOR, &addresses);
    one_life(&mut survivor, &addresses, 0);
    survivor.wait_until_disconnected();
    let (alone, mut noticed) = (settled(None), Vec::new());
    for round in 0..KILLS {
        let stage = STAGES[round % STAGES.len()];
        let (mut child, reached) = peer(stage, first);
        let since = Instant::now();
        // One peer in seven is killed at an arbitrary time.
        let (any, at) = (round % 7 == 6, Duration::from_millis(round as u64 * 11 % 90));
        let mut told = None;
        loop {
            survivor.pump();
            survivor.reset_if_broken();
            if told.is_none() && reached.load(Ordering::SeqCst) {
                told = Some(Instant::now());
            }
            // The other peers are killed some time after they have reached their state, so that the kill interrupts
            // their repeated operation.
            let later = Duration::from_millis(round as u64 * 5 % 23);
            if if any { since.elapsed() >= at } else { told.is_some_and(|told| told.elapsed() >= later) } {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "round {round}: the peer does not reach `{stage}`");
            assert!(child.try_wait().unwrap().is_none(), "round {round}: the peer ended before `{stage}`");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        let killed = Instant::now();
        child.wait().unwrap();
        survivor.wait_until_disconnected();
        noticed.push(killed.elapsed());
        assert_eq!(settled(Some(&alone)), alone, "round {round}, killed: {stage}");
    }
    noticed.sort_unstable();
    println!(
        "{KILLS} peers killed in {:.1} s; the survivor is ready for the next peer after {:?} (median), {:?} at most",
        begin.elapsed().as_secs_f64(),
        noticed[KILLS / 2],
        noticed[KILLS - 1],
    );
    drop(survivor);
    assert_eq!(settled(Some(&before)), before);
}
