//! Messages for operators contain the names of processes.

use stentor_fabric::{ProcessId, QpConfig};

use super::support::*;
use crate::message::Message;

const QP: QpConfig = QpConfig::reliable(4, 0);

#[test]
fn closed_connection_is_reported_with_both_names() {
    let mut pair = Pair::new(QP);
    pair.b.tell(ProcessId(0), &Message::Welcome { control_words: 1 }, &[]);
    let mut refusal = None;
    until("closed", || {
        events(&mut pair.a);
        refusal = refusal.take().or_else(|| pair.a.next_refusal());
        refusal.is_some()
    });
    let told = refusal.unwrap().tell(|process| format!("g1.{}", process.0));
    assert_eq!(told, "g1.0 of cluster test closed the connection to g1.1: a handshake after the handshake");
}

#[test]
fn peer_that_cannot_be_dialled_is_reported_by_name() {
    let mut pair = Pair::new(QP);
    pair.a.control.refuse_named(ProcessId(1), "cannot be dialled: Too many open files");
    let told = pair.a.next_refusal().unwrap().tell(|process| format!("g1.{}", process.0));
    assert_eq!(told, "g1.1 cannot be dialled: Too many open files");
}
