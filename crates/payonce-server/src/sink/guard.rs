//! Where effects must not go: into the private network, unless that is meant.
//!
//! Here: looking names up, and which addresses are private. Not here: whether it is meant (`config`), the
//! request (`webhook`).
//!
//! Names are judged after they are looked up, and the very addresses that were judged are connected to: a
//! name that changes its address between the look and the connection gains nothing.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Looks names up, and drops private addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) allow_private: bool,
}

#[derive(Debug)]
struct AllPrivate(String);

impl fmt::Display for AllPrivate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has private addresses only; set allow_private if that is meant", self.0)
    }
}

impl std::error::Error for AllPrivate {}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let kept: Vec<SocketAddr> = found.filter(|at| allow_private || !is_private(at.ip())).collect();
            if kept.is_empty() {
                return Err(AllPrivate(name.as_str().to_owned()).into());
            }
            Ok(Box::new(kept.into_iter()) as Addrs)
        })
    }
}

/// Whether an address is of this machine, of a private network, or of no network at all.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || a == 0
        || a >= 240
        // Shared between carriers and their customers (RFC 6598), protocol assignments (RFC 6890), benchmarks (RFC 2544).
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (18..20).contains(&b))
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_private_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => true,
        // An IPv4 address in IPv6 clothes: mapped, compatible, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0xFFFF | 0, high, low] | [0x64, 0xFF9B, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        [first, ..] => {
            // Unique local, link local, site local, multicast.
            first & 0xFE00 == 0xFC00 || first & 0xFFC0 == 0xFE80 || first & 0xFFC0 == 0xFEC0 || first & 0xFF00 == 0xFF00
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_in_every_clothing() {
        let private = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
        ];
        for text in private {
            assert!(is_private(text.parse().unwrap()), "{text}");
        }
        let public = [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "2002:101:101::",
        ];
        for text in public {
            assert!(!is_private(text.parse().unwrap()), "{text}");
        }
    }

    #[tokio::test]
    async fn names_are_judged_by_their_addresses() {
        let resolve = |allow_private| Names { allow_private }.resolve("localhost".parse().unwrap());
        let error = resolve(false).await.err().unwrap().to_string();
        assert!(error.contains("localhost has private addresses only"), "{error}");
        assert!(resolve(true).await.unwrap().all(|at| at.ip().is_loopback()));
    }
}
