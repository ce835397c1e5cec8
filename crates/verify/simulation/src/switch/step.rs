//! What may happen at once.

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// The packet at this place of a host's link arrives at the switch.
    Up(u8, u8),
    /// The first packet in the loop goes through the pipeline.
    Loop,
    /// The packet at this place of a link arrives at the host.
    Down(u8, u8),
    /// A packet to the switch is lost.
    LoseUp(u8),
    /// A packet in the loop is lost.
    LoseLoop,
    /// A packet to a host is lost.
    LoseDown(u8),
    /// A packet arrives at the switch, and will once more.
    RepeatUp(u8),
    /// A packet arrives at a host, and will once more.
    RepeatDown(u8),
    /// A packet to the switch is damaged: the bit of this byte, counted from its end, is another.
    DamageUp(u8, u8),
    /// A packet to a host is damaged.
    DamageDown(u8, u8),
    /// A host's next deadline has come.
    Timer(u8),
    /// So much time passes at the switch that every lease ends of who is silent.
    Lease,
    /// A host posts the receives again that were used.
    Receives(u8),
    /// The switch loses its memory.
    Restart,
}
