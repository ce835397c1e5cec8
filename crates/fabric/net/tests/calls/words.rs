//! Terms of the contract as text that does not change when types are renamed.

use stentor_fabric::{
    Access, AccessError, Completion, ConnectError, Event, Opcode, PostError, RegisterError, Source, Status, Verb,
};

pub(super) fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Atomic => "atomic",
    }
}

fn opcode(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Write => "write",
        Opcode::Read => "read",
        Opcode::Send => "send",
        Opcode::Atomic => "atomic",
        Opcode::Recv => "recv",
        Opcode::RecvWriteImm => "recv-write-imm",
        Opcode::TaggedSend => "tagged-send",
        Opcode::TaggedRecv => "tagged-recv",
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Success => "success",
        Status::LocalLength => "local-length",
        Status::LocalProtection => "local-protection",
        Status::Flushed => "flushed",
        Status::RemoteInvalidRequest => "remote-invalid-request",
        Status::RemoteAccess => "remote-access",
        Status::RemoteOperational => "remote-operational",
        Status::RetryExceeded => "retry-exceeded",
        Status::RnrRetryExceeded => "rnr-retry-exceeded",
        Status::Cancelled => "cancelled",
        Status::QueueOverrun => "queue-overrun",
    }
}

pub(super) fn completion(done: &Completion) -> String {
    let Completion { qp, id, bytes, imm, tag, .. } = done;
    let imm = imm.map_or(String::new(), |imm| format!(" imm {imm}"));
    format!("q{} #{id} {} {} {bytes} bytes{imm} tag {tag}", qp.0, opcode(done.opcode), status(done.status))
}

pub(super) fn event(event: &Event) -> String {
    match event {
        Event::Connected { qp, peer } => format!("connected q{} to p{}", qp.0, peer.0),
        Event::Disconnected { qp, peer } => format!("disconnected q{} from p{}", qp.0, peer.0),
        Event::Revoked { region, peer } => format!("revoked r{} from p{}", region.0, peer.0),
    }
}

pub(super) fn connect_error(error: &ConnectError) -> &'static str {
    match error {
        ConnectError::UnknownProcess(_) => "unknown process",
        ConnectError::TooDeep { .. } => "too deep",
        ConnectError::System { .. } => "system",
        ConnectError::NoUnreliable => "no unreliable",
        ConnectError::NoSets => "no sets",
        ConnectError::Set { .. } => "wrong set",
        ConnectError::UnknownQp(_) => "unknown queue pair",
        ConnectError::NotBroken { .. } => "not broken",
        ConnectError::Refused { .. } => "refused",
        ConnectError::Duplicate { .. } => "duplicate",
    }
}

pub(super) fn register_error(error: &RegisterError) -> &'static str {
    match error {
        RegisterError::Size { .. } => "wrong size",
        RegisterError::Duplicate { .. } => "duplicate",
        RegisterError::UnknownProcess(_) => "unknown process",
        RegisterError::Refused { .. } => "refused",
        RegisterError::System { .. } => "system",
    }
}

pub(super) fn access_error(error: &AccessError) -> &'static str {
    match error {
        AccessError::UnknownRegion(_) => "unknown region",
        AccessError::NotForPeer { .. } => "not for this peer",
        AccessError::System { .. } => "system",
    }
}

pub(super) fn post_error(error: &PostError) -> &'static str {
    match error {
        PostError::UnknownQp(_) => "unknown queue pair",
        PostError::NotReady { .. } => "not ready",
        PostError::SendQueueFull { .. } => "send queue full",
        PostError::RecvQueueFull { .. } => "receive queue full",
        PostError::NotReached { .. } => "not reached",
        PostError::InlineTooLong { .. } => "inline too long",
        PostError::OutOfLocalRegion { .. } => "outside of the region",
        PostError::TooLong { .. } => "too long",
        PostError::Misaligned { .. } => "misaligned",
        PostError::NotRegistered { .. } => "not registered",
        PostError::Unsupported(_) => "unsupported",
    }
}

fn source(source: &Source<'_>) -> String {
    match source {
        Source::Inline(data) => format!("{} bytes inline", data.len()),
        Source::Region(span) => format!("{} bytes of r{}+{}", span.bytes, span.region.0, span.offset),
    }
}

pub(super) fn verb(verb: &Verb<'_>) -> String {
    match verb {
        Verb::Write { source: from, target } => format!("write {} to +{}", source(from), target.offset),
        Verb::WriteImm { source: from, target, imm } => {
            format!("write {} to +{} imm {imm}", source(from), target.offset)
        }
        Verb::Read { local, remote } => {
            format!("read {} bytes of +{} into r{}+{}", local.bytes, remote.offset, local.region.0, local.offset)
        }
        Verb::Send { source: from, imm } => {
            format!("send {}{}", source(from), imm.map_or(String::new(), |imm| format!(" imm {imm}")))
        }
        Verb::CompareSwap { remote, expected, new, .. } => {
            format!("compare-and-swap +{} {expected} by {new}", remote.offset)
        }
        Verb::FetchAdd { remote, add, .. } => format!("fetch-and-add +{} {add}", remote.offset),
        Verb::TaggedSend { source: from, tag } => format!("tagged send {} tag {tag}", source(from)),
    }
}
