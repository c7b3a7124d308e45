// SPDX-License-Identifier: MIT OR Apache-2.0

//! Socket addresses of C programs.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::guard::Errno;
use crate::refuse::refuse;

/// Reads an address. IPv4 and IPv6 are all that there is.
///
/// # Safety
///
/// `addr` is null or points to a socket address of its family's size.
pub(crate) unsafe fn read(addr: *const libc::sockaddr) -> Result<SocketAddr, Errno> {
    // SAFETY: from the caller; the family, which comes first, says what the rest is. Read without
    // alignment, as the pointer promises only that of `sockaddr`.
    unsafe {
        let Some(start) = addr.as_ref() else {
            return Err(refuse!(EINVAL, "the address is NULL"));
        };
        let family = c_int::from(start.sa_family);
        match family {
            libc::AF_INET => {
                let v4 = addr.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
                Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = addr.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let (flow, scope) = (v6.sin6_flowinfo, v6.sin6_scope_id);
                Ok(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), flow, scope).into())
            }
            _ => Err(refuse!(
                EINVAL,
                "the address is of the family {family}; there are only IPv4 and IPv6"
            )),
        }
    }
}

/// The address as C has it.
pub(crate) fn storage(addr: SocketAddr) -> libc::sockaddr_storage {
    let mut storage = empty();
    let place = &raw mut storage;
    match addr {
        SocketAddr::V4(v4) => {
            let native = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: v4.ip().to_bits().to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: a `sockaddr_storage` holds and is aligned for any kind of address.
            unsafe { place.cast::<libc::sockaddr_in>().write(native) };
        }
        SocketAddr::V6(v6) => {
            let native = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(native) };
        }
    }
    storage
}

/// No address.
pub(super) const fn empty() -> libc::sockaddr_storage {
    // SAFETY: plain data, for which all zeros is a value.
    unsafe { std::mem::zeroed() }
}

/// The address as a GID: IPv4 within IPv6.
pub(super) const fn gid(addr: SocketAddr) -> [u8; 16] {
    match addr {
        SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped().octets(),
        SocketAddr::V6(v6) => v6.ip().octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_both_ways() {
        for text in ["127.0.0.1:7174", "0.0.0.0:0", "[::1]:65535", "[fe80::1%3]:9"] {
            let addr: SocketAddr = text.parse().unwrap();
            let storage = storage(addr);
            // SAFETY: a whole address.
            assert_eq!(unsafe { read((&raw const storage).cast()) }.unwrap(), addr);
        }
    }

    #[test]
    fn other_families_are_refused() {
        let nothing = empty();
        // SAFETY: null, and an address of no family.
        unsafe {
            assert_eq!(read(std::ptr::null()), Err(Errno::plain(libc::EINVAL)));
            assert_eq!(read((&raw const nothing).cast()), Err(Errno::plain(libc::EINVAL)));
        }
    }
}
