//! Times as the platforms write them.
//!
//! Here: text to instant, leniently: a time is shown and never decides, so one that cannot be read is `None`
//! and no failure. Times without a zone are Beijing time wherever this runs (F109), by a fixed offset: no
//! database of zones is asked, and there has been no summer time since 1991. Not here: the present.

use jiff::{Timestamp, civil::DateTime, tz::Offset};
use payonce::time::Micros;

const BEIJING: Offset = Offset::constant(8);

/// Forms without a zone, most frequent first. `yyyyMMddHHmmss` stands in some WeChat Pay examples.
const CIVIL_FORMS: [&str; 3] = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y%m%d%H%M%S"];

/// RFC 3339 with any offset and fraction, or a text without a zone in Beijing time.
pub(crate) fn read(text: &str) -> Option<Micros> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.into());
    }
    let civil = CIVIL_FORMS.iter().find_map(|form| DateTime::strptime(form, text).ok())?;
    BEIJING.to_timestamp(civil).ok().map(Micros::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F109: the same instant, whatever the zone of the machine and of the text.
    #[test]
    fn zones_do_not_move_an_instant() {
        let midnight = Micros::from_seconds(1_704_039_000);
        let table = [
            ("2024-01-01T00:10:00+08:00", Some(midnight)),
            ("2023-12-31T16:10:00Z", Some(midnight)),
            ("2023-12-31T11:10:00-05:00", Some(midnight)),
            ("2024-01-01 00:10:00", Some(midnight)),
            ("2024-01-01 00:10:00.120", Some(Micros(midnight.0 + 120_000))),
            ("2024-01-01T00:10:00.120+08:00", Some(Micros(midnight.0 + 120_000))),
            ("20240101001000", Some(midnight)),
            ("", None),
            ("2024-13-01 00:10:00", None),
            ("yesterday", None),
            ("0000-00-00 00:00:00", None),
        ];
        for (text, want) in table {
            assert_eq!(read(text), want, "{text}");
        }
    }
}
