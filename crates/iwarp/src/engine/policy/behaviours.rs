// SPDX-License-Identifier: MIT OR Apache-2.0

//! The learned behaviours, to be switched off one by one.

use bitflags::bitflags;

bitflags! {
    /// The part of the engine's behaviour that follows from what it has learned of a program. None
    /// of it is needed for bytes to arrive: it can be switched off, to measure what it earns, or to
    /// see whether it has a part in some trouble.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Behaviours: u8 {
        /// Posts in quick succession between two polls go out together.
        const GATHER = 1;
        /// A post stays in the library for the answer that the program awaits by spinning on
        /// memory.
        const AWAITING = 2;
        /// An acknowledgement goes out with the program's next message.
        const PIGGYBACK = 4;
        /// When a poll that finds nothing gives up its CPU follows from what that costs.
        const BACKOFF = 8;
        /// A queue that is armed again and again in vain is left to its program.
        const ARMING = 32;
        /// A caller that polls in vain moves what is ready for other completion queues.
        const LEND = 16;
        /// A sender within the host wakes the program that waits for an event, and not its worker.
        const ALERTS = 64;
    }
}

impl Behaviours {
    /// The names of some, with commas between; `None` where one is unknown.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(Self::named).collect()
    }

    fn named(word: &str) -> Option<Self> {
        let mut all = Self::all().iter_names();
        all.find_map(|(name, one)| (name.to_ascii_lowercase() == word).then_some(one))
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_constants() {
        assert_eq!(Behaviours::parse(""), Some(Behaviours::empty()));
        let two = Behaviours::GATHER | Behaviours::LEND;
        assert_eq!(Behaviours::parse("gather, lend"), Some(two));
        assert_eq!(Behaviours::parse("gather,loans"), None);
        assert_eq!(Behaviours::parse("GATHER"), None);
    }
}
