// SPDX-License-Identifier: MIT OR Apache-2.0

//! The digest of the headers of IP and UDP, which nearly all packets of a flow have in common.

use iwarp_types::Digest;

use super::{Identification, start};
use crate::wire::Path;

/// The digest of the last headers that were asked for.
#[derive(Clone, Debug, Default)]
pub(in crate::wire) struct LastStart(Option<(Path, usize, Digest)>);

impl LastStart {
    /// None was asked for.
    pub(in crate::wire) const fn new() -> Self {
        Self(None)
    }

    /// The digest of the masked headers of a packet with so many octets behind its UDP header, and
    /// with the identification 0.
    pub(in crate::wire) fn of(&mut self, path: &Path, octets: usize) -> Digest {
        let Self(last) = self;
        match last {
            Some((known, length, digest)) if *length == octets && known == path => *digest,
            _ => {
                let digest = start(path, Identification::default(), octets);
                *last = Some((*path, octets, digest));
                digest
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use iwarp_types::AddressVector;

    use super::*;

    #[test]
    fn other_headers_have_another_digest() {
        let v4: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let v6: [IpAddr; 2] = ["fe80::1".parse().unwrap(), "fe80::2".parse().unwrap()];
        let mut last = LastStart::default();
        for [source, destination] in [v4, [v4[1], v4[0]], v6] {
            for source_port in [0xc000, 0xc001] {
                for octets in [16, 16, 20, 16] {
                    let path = Path::new(AddressVector::new(source, destination), source_port);
                    let expected = start(&path, Identification::default(), octets);
                    assert_eq!(last.of(&path, octets).register(), expected.register());
                }
            }
        }
    }
}
