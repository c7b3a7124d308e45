// SPDX-License-Identifier: MIT OR Apache-2.0

//! The speed of the port that programs see. It limits nothing: some programs choose devices, sizes
//! and ways to copy by it, and some refuse a slow port.
//!
//! It is not far above the speed that memory and the system have here. By a port that is slower
//! than a copy of the memory, UCX judges that copies cost nothing: it then reads in pieces of 8 KiB
//! by way of buffers, where a faster port gets one Read into the program's own memory.

/// A speed that a RoCE card's port can have: lanes and the rate of each. 100 Gbit/s, as four lanes
/// of 25, unless an option says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Speed {
    gbit: u16,
    /// `active_width` of the verbs, and its name.
    width: (u8, &'static str),
    /// `active_speed` of the verbs, its names in sysfs and in `ibv_devinfo`.
    lane: (u8, &'static str, &'static str),
}

const ONE: (u8, &str) = (1, "1X");
const FOUR: (u8, &str) = (2, "4X");
const QDR: (u8, &str, &str) = (4, "QDR", "10.0 Gbps");
const EDR: (u8, &str, &str) = (32, "EDR", "25.0 Gbps");
const HDR: (u8, &str, &str) = (64, "HDR", "50.0 Gbps");
const NDR: (u8, &str, &str) = (128, "NDR", "100.0 Gbps");

const ALL: [Speed; 7] = [
    Speed { gbit: 10, width: ONE, lane: QDR },
    Speed { gbit: 25, width: ONE, lane: EDR },
    Speed { gbit: 40, width: FOUR, lane: QDR },
    Speed { gbit: 50, width: ONE, lane: HDR },
    Speed::DEFAULT,
    Speed { gbit: 200, width: FOUR, lane: HDR },
    Speed { gbit: 400, width: FOUR, lane: NDR },
];

impl Speed {
    const DEFAULT: Self = Self { gbit: 100, width: FOUR, lane: EDR };

    /// The one of so many Gbit/s: 10, 25, 40, 50, 100, 200 or 400. `None` for other numbers.
    pub fn of_gbit(gbit: u16) -> Option<Self> {
        ALL.into_iter().find(|speed| speed.gbit == gbit)
    }

    /// Gbit/s of all lanes together.
    pub const fn gbit(self) -> u16 {
        self.gbit
    }

    /// `active_width` of `ibv_query_port(3)`: 1 for one lane, 2 for four.
    pub const fn active_width(self) -> u8 {
        self.width.0
    }

    /// `active_speed` of `ibv_query_port(3)`: the code of a lane's rate.
    pub const fn active_speed(self) -> u8 {
        self.lane.0
    }

    /// The names of width and speed in `ibv_devinfo(1)`: `4X`, `25.0 Gbps`.
    pub const fn names(self) -> (&'static str, &'static str) {
        (self.width.1, self.lane.2)
    }

    /// The file `rate` of the port in sysfs: `100 Gb/sec (4X EDR)`.
    pub fn rate(self) -> String {
        format!("{} Gb/sec ({} {})", self.gbit, self.width.1, self.lane.1)
    }
}

impl Default for Speed {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_its_lanes_times_the_rate_of_one() {
        for speed in ALL {
            let (width, rate) = speed.names();
            let lanes: f64 = width.trim_end_matches('X').parse().unwrap();
            let lane: f64 = rate.trim_end_matches(" Gbps").parse().unwrap();
            assert_eq!(lanes * lane, f64::from(speed.gbit()));
            assert_eq!(Speed::of_gbit(speed.gbit()), Some(speed));
        }
        assert_eq!((Speed::of_gbit(0), Speed::of_gbit(56)), (None, None));
    }

    #[test]
    fn a_port_is_shown_as_linux_shows_it() {
        assert_eq!(Speed::default().rate(), "100 Gb/sec (4X EDR)");
        let fast = Speed::of_gbit(400).unwrap();
        assert_eq!((fast.active_width(), fast.active_speed()), (2, 128));
        assert_eq!(fast.rate(), "400 Gb/sec (4X NDR)");
    }
}
