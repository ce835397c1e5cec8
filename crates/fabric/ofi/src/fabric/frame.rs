//! Frames: control messages between the ends of a connection, which carry SENDs in pieces, credits for posted receives,
//! and fences.
//!
//! Every frame begins with the token that its receiver has sent in its connection offer. Late frames from a closed end
//! have another token, and so do frames from a process that knows only the address. Such frames are dropped.

/// Length of a frame's header, in bytes.
pub(super) const HEADER: usize = 32;
/// Maximum length of a frame, in bytes.
pub(super) const FRAME: usize = 4096;
/// Maximum length of a frame's data, in bytes.
pub(super) const PIECE: usize = FRAME - HEADER;

/// Type of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// A piece of a SEND: `whole` is the length of the message, `offset` the position of the piece in it.
    Piece { whole: u32, offset: u32, imm: Option<u32> },
    /// The next SEND is longer than its receive. The sender does not send it, and the connection breaks.
    TooLong,
    /// The sender of the frame has posted receives. The frame's data is the length of each receive, in 4 bytes.
    Credits,
    /// The receiver of the frame must stop using the region with this key, and must send `Fenced` when none of its
    /// operations on the region is outstanding any more.
    Fence { key: u64 },
    /// Reply to `Fence`: no operation on the region with this key is outstanding, and none will be posted.
    Fenced { key: u64 },
    /// Wakes the receiver of the frame. The sender sends it after writes that the receiver cannot detect otherwise, and
    /// when a connection begins.
    Bell,
}

/// Encodes a header.
pub(super) fn encode(token: u64, kind: FrameKind) -> [u8; HEADER] {
    let (code, a, b, imm) = match kind {
        FrameKind::Piece { whole, offset, imm } => {
            (1_u8, u64::from(whole) | u64::from(offset) << 32, imm.is_some(), imm)
        }
        FrameKind::TooLong => (2, 0, false, None),
        FrameKind::Credits => (3, 0, false, None),
        FrameKind::Fence { key } => (4, key, false, None),
        FrameKind::Fenced { key } => (5, key, false, None),
        FrameKind::Bell => (6, 0, false, None),
    };
    let mut to = [0; HEADER];
    to[..8].copy_from_slice(&token.to_be_bytes());
    to[8] = code;
    to[9] = b.into();
    to[12..16].copy_from_slice(&imm.unwrap_or(0).to_be_bytes());
    to[16..24].copy_from_slice(&a.to_be_bytes());
    to
}

/// Decodes a header. Returns `None` if it is invalid or has another token.
pub(super) fn decode(token: u64, header: &[u8; HEADER]) -> Option<FrameKind> {
    let number = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let imm = header[12..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let a = number(16);
    if number(0) != token || header[9] > 1 {
        return None;
    }
    Some(match header[8] {
        1 => FrameKind::Piece { whole: a as u32, offset: (a >> 32) as u32, imm: (header[9] == 1).then_some(imm) },
        2 => FrameKind::TooLong,
        3 => FrameKind::Credits,
        4 => FrameKind::Fence { key: a },
        5 => FrameKind::Fenced { key: a },
        6 => FrameKind::Bell,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_only_with_their_token() {
        for kind in [
            FrameKind::Piece { whole: 70_000, offset: 65_536, imm: Some(9) },
            FrameKind::Piece { whole: 0, offset: 0, imm: None },
            FrameKind::TooLong,
            FrameKind::Credits,
            FrameKind::Fence { key: u64::MAX - 7 },
            FrameKind::Fenced { key: 1 << 40 },
            FrameKind::Bell,
        ] {
            let bytes = encode(77, kind);
            assert_eq!(decode(77, &bytes), Some(kind));
            assert_eq!(decode(78, &bytes), None);
        }
        let mut odd = encode(1, FrameKind::Bell);
        odd[8] = 9;
        assert_eq!(decode(1, &odd), None);
    }
}
