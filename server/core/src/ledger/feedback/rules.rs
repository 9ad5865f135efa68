//! Rules of the law that a simulation can leave out, to show that each is needed.

/// A rule of the law. `Tuning::feedback_without` names one that a simulation leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedbackRule {
    /// Only intervals that lie in the window are evidence. Without: those that began before it are,
    /// too.
    IntervalInWindow,
    /// A window opens once a cut has arrived at the holders. Without: at once.
    CutArrived,
    /// A level is tried again if cuts below it did not help. Without: each overload is a cut.
    Trial,
    /// The outcomes of holders that suffer alone are no evidence. Without: they are.
    SuffersAlone,
    /// The level rises only under load. Without: also while nobody wants it.
    GrowthUnderLoad,
    /// The level rises only once few or no requests were overloaded at it. Without: unseen.
    GrowthAfterVerdict,
    /// The level rises slowly near the known plateau. Without: as fast as elsewhere.
    CarefulZone,
    /// A probe pays for the overloads that it caused by a longer hold. Without: it does not.
    EarnBack,
    /// A target that accepts nothing is left alone until it wants to be asked. Without: the level
    /// is lowered.
    Pause,
    /// The level follows what the target says of its own limit. Without: it does not.
    Seen,
    /// A verdict takes enough requests. Without: one.
    EnoughRequests,
    /// The level is at most the configured capacity. Without: nothing limits it.
    Ceiling,
    /// The level is at least the floor. Without: about 0.
    Floor,
    /// A template without `feedback` ends what the law held back. Without: it stays.
    EndsWithTemplate,
}
