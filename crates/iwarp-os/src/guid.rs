// SPDX-License-Identifier: MIT OR Apache-2.0

//! A name for the host (EUI-64), as RDMA devices have one.

use std::fs;

use crate::addr;

/// Set in an address that no vendor gave out.
const LOCALLY_ADMINISTERED: u64 = 0x02 << 56;
const GROUP: u64 = 0x01 << 56;

/// A number that all processes of the host share, and most likely no other host: made of the
/// Ethernet address of its first interface, or else of the system's own id.
pub fn of_host() -> u64 {
    let interfaces = addr::interfaces().unwrap_or_default();
    let by_reach = addr::by_reach(&interfaces);
    let first =
        by_reach.iter().find_map(|(_, interface)| interface.mac.filter(|_| !interface.bridge));
    if let Some(mac) = first {
        return of_mac(mac);
    }
    // A host (or container) of its own without an Ethernet: what names the system, or its run.
    let files = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"];
    let id = files.iter().find_map(|file| fs::read(file).ok().filter(|id| !id.is_empty()));
    of_name(&id.unwrap_or_default())
}

/// The bytes of a GUID or a GID as the kernel writes them: groups of two, with colons between.
pub fn in_groups(octets: &[u8]) -> String {
    let groups = octets.chunks_exact(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    groups.collect::<Vec<_>>().join(":")
}

/// The number that network cards make of their Ethernet address (RFC 4291, appendix A).
const fn of_mac([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// FNV-1a: any function that spreads well would do.
fn of_name(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash | LOCALLY_ADMINISTERED) & !GROUP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_becomes_an_eui_64() {
        assert_eq!(of_mac([0x02, 0x00, 0x5e, 0x10, 0x20, 0x30]), 0x0000_5eff_fe10_2030);
    }

    #[test]
    fn it_is_written_in_groups() {
        assert_eq!(in_groups(&0x0000_5eff_fe10_2030_u64.to_be_bytes()), "0000:5eff:fe10:2030");
    }

    #[test]
    fn it_stays_the_same() {
        assert_eq!(of_host(), of_host());
        assert_ne!(of_host(), 0);
    }

    #[test]
    fn a_made_one_is_nobodys() {
        let made = of_name(b"0123456789abcdef");
        assert_eq!(made & (LOCALLY_ADMINISTERED | GROUP), LOCALLY_ADMINISTERED);
        assert_ne!(made, of_name(b"0123456789abcdee"));
    }
}
