//! Register cells, and the functions of a session that answer questions about a rank.

use stentor_switch::registers::{Acked, Arrays, MOST, Member, Notice, Progress, Rank, Session, State};

#[test]
fn cells_list_their_fields_and_sum_their_bits() {
    assert_eq!(Rank::BITS, 32 + 24 + 24 + 24);
    assert_eq!(Rank::FIELDS[1], ("sqpn", 24));
    let told = Rank { sqpn: 7, ..Rank::default() }.told();
    assert_eq!((told.len(), &told[1]), (Rank::FIELDS.len(), &("sqpn", "7".to_owned())));
    assert_eq!(Session::BITS, Session::FIELDS.iter().map(|(_, bits)| bits).sum::<u32>());
}

#[test]
fn arrays_have_a_cell_of_each_kind_for_each_set_and_rank() {
    let per_rank = u64::from(Rank::BITS + Member::BITS + Acked::BITS) * MOST as u64;
    let per_set = per_rank + u64::from(Session::BITS + Progress::BITS + Notice::BITS);
    for sets in [0, 1, 3] {
        let arrays = Arrays::new(sets);
        assert_eq!((arrays.sets(), arrays.bits()), (sets, per_set * sets as u64));
    }
}

#[test]
fn the_header_of_a_packet_in_the_loop_has_a_stated_size() {
    // Epoch, slot, kind of job, and the fields of the longest job.
    assert_eq!(stentor_switch::Bridge::BITS, 32 + 5 + 3 + 114);
}

#[test]
fn only_a_set_in_use_is_held() {
    let session = |state, holder| Session { state, holder, ..Session::default() };
    for state in [State::Linking, State::Active, State::Poisoned] {
        assert!(session(state, 3).is_held_by(3) && !session(state, 3).is_held_by(2), "{state:?}");
    }
    assert!(!session(State::Free, 3).is_held_by(3) && !session(State::Silent, 3).is_held_by(3));
}

#[test]
fn members_are_bits_of_the_mask() {
    let session = Session { mask: 1 << 31 | 1 << 4, ..Session::default() };
    let members: Vec<u8> = (0..MOST as u8).filter(|rank| session.has(*rank)).collect();
    assert_eq!(members, [4, 31]);
}
