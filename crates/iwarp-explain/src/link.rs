// SPDX-License-Identifier: MIT OR Apache-2.0

//! Link layers: the way to the IP header.

/// The content of a frame of a link layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// IP, from this byte on.
    Ip(usize),
    /// RoCE of the first version, which has no IP header.
    RoceV1,
    /// Another protocol, or too few bytes to tell.
    Other,
    /// A link layer without a name here.
    UnknownLink,
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_ROCE_V1: u16 = 0x8915;
const VLAN_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// Finds the content of a frame.
pub(crate) fn content(link: u32, data: &[u8]) -> Content {
    match link {
        // BSD's loopback, with a family in the order of the host that captured or of the network.
        0 | 108 if data.len() > 4 => Content::Ip(4),
        1 => typed(data, 12),
        // Raw IP, by the numbers that systems have for it.
        12 | 14 | 101 | 228 | 229 => Content::Ip(0),
        113 => typed(data, 14),
        276 => match field(data, 0) {
            Some(ETHERTYPE_IPV4 | ETHERTYPE_IPV6) => Content::Ip(20),
            Some(ETHERTYPE_ROCE_V1) => Content::RoceV1,
            Some(tag) if VLAN_TAGS.contains(&tag) => typed(data, 22),
            _ => Content::Other,
        },
        0 | 108 => Content::Other,
        _ => Content::UnknownLink,
    }
}

/// The content of a frame whose type stands at `at`, behind tags of VLANs perhaps.
fn typed(data: &[u8], mut at: usize) -> Content {
    loop {
        match field(data, at) {
            Some(ETHERTYPE_IPV4 | ETHERTYPE_IPV6) => return Content::Ip(at + 2),
            Some(ETHERTYPE_ROCE_V1) => return Content::RoceV1,
            Some(tag) if VLAN_TAGS.contains(&tag) => at += 4,
            _ => return Content::Other,
        }
    }
}

fn field(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|octets| u16::from_be_bytes(*octets))
}

#[cfg(test)]
mod tests {
    use super::{Content, content};

    #[test]
    fn ip_is_found_behind_each_link_layer() {
        let mut ethernet = vec![0; 14];
        ethernet[12..].copy_from_slice(&[0x08, 0x00]);
        assert_eq!(content(1, &ethernet), Content::Ip(14));
        let mut tagged = vec![0; 22];
        tagged[12..14].copy_from_slice(&[0x88, 0xa8]);
        tagged[16..18].copy_from_slice(&[0x81, 0x00]);
        tagged[20..22].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(content(1, &tagged), Content::Ip(22));
        let mut sll = vec![0; 16];
        sll[14..].copy_from_slice(&[0x08, 0x00]);
        assert_eq!(content(113, &sll), Content::Ip(16));
        let mut sll2 = vec![0; 20];
        sll2[..2].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(content(276, &sll2), Content::Ip(20));
        assert_eq!(content(101, &[0x45]), Content::Ip(0));
        assert_eq!(content(0, &[2, 0, 0, 0, 0x45]), Content::Ip(4));
        assert_eq!(content(1, &[0; 13]), Content::Other);
        assert_eq!(content(147, &[0; 64]), Content::UnknownLink);
    }
}
