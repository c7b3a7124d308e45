// SPDX-License-Identifier: MIT OR Apache-2.0

//! The size of an iomap table in one octet.

/// Number of entries of an iomap table, as one octet can say it: up to 128 as it is, beyond that in
/// units of 256 (RS-WIRE-06).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IomapSize(u8);

impl IomapSize {
    /// Most entries that can be said.
    pub const MAX_ENTRIES: usize = 0x7f * Self::UNIT;

    const AS_IS: usize = 0x80;
    const IN_UNITS: u8 = 0x80;
    const UNIT: usize = 256;

    /// The smallest size with at least so many entries; the largest that there is for more than
    /// [`MAX_ENTRIES`](Self::MAX_ENTRIES) (RS-OPT-03).
    pub const fn covering(entries: usize) -> Self {
        if entries <= Self::AS_IS {
            return Self(entries as u8);
        }
        let units = entries.div_ceil(Self::UNIT);
        let most = Self::MAX_ENTRIES / Self::UNIT;
        Self(Self::IN_UNITS | if units < most { units } else { most } as u8)
    }

    /// The size that an octet says.
    pub const fn from_octet(octet: u8) -> Self {
        Self(octet)
    }

    /// The octet.
    pub const fn octet(self) -> u8 {
        self.0
    }

    /// Number of entries.
    pub const fn entries(self) -> u32 {
        match self.0 {
            octet if octet as usize <= Self::AS_IS => octet as u32,
            octet => (octet & !Self::IN_UNITS) as u32 * Self::UNIT as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IomapSize;

    /// Covers: RS-WIRE-06
    #[test]
    fn sizes_are_rounded_to_what_an_octet_says() {
        let said = |entries| {
            (IomapSize::covering(entries).octet(), IomapSize::covering(entries).entries())
        };
        assert_eq!(said(0), (0, 0));
        assert_eq!(said(4), (4, 4));
        assert_eq!(said(128), (0x80, 128));
        assert_eq!(said(129), (0x81, 256));
        assert_eq!(said(257), (0x82, 512));
        assert_eq!(said(32_512), (0xff, 32_512));
        assert_eq!(said(usize::MAX), (0xff, 32_512));
        for octet in 0..=u8::MAX {
            let size = IomapSize::from_octet(octet);
            assert_eq!(IomapSize::covering(size.entries() as usize), size);
        }
    }
}
