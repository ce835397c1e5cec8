//! The steps of the model of the switch and its hosts.

/// A step of the model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// The packet at this index of a host's link arrives at the switch.
    Up(u8, u8),
    /// The first packet in the loop passes through the pipeline.
    Loop,
    /// The packet at this index of a link arrives at the host.
    Down(u8, u8),
    /// A packet to the switch is lost.
    LoseUp(u8),
    /// A packet in the loop is lost.
    LoseLoop,
    /// A packet to a host is lost.
    LoseDown(u8),
    /// A packet arrives at the switch, and will arrive once more.
    RepeatUp(u8),
    /// A packet arrives at a host, and will arrive once more.
    RepeatDown(u8),
    /// A packet to the switch is damaged: one bit of the byte at this index from the end of the packet is inverted.
    DamageUp(u8, u8),
    /// A packet to a host is damaged in the same way.
    DamageDown(u8, u8),
    /// A host's next deadline arrives.
    Timer(u8),
    /// Advances the switch's clock until every idle holder's lease has expired.
    Lease,
    /// A host posts its used receives again.
    Receives(u8),
    /// The switch loses its memory.
    Restart,
}
