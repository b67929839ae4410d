//! The server's side of secure sums: masked numbers and shares into sums.

use super::machine::{SlotShape, mark};
use super::masks::mask;
use super::shares::join;
use super::{Masked, Seed, Shares, threshold};

/// What a slot has in all; `None` where too few clients are in it.
pub(crate) type Total = Option<Vec<i128>>;

/// Why this cannot be what one of so many machines sends.
pub(crate) fn fault(masked: &Masked, shapes: &[SlotShape], machines: usize) -> Option<&'static str> {
    let length: usize = shapes.iter().map(|shape| shape.length).sum();
    let is_whole = (masked.numbers.len(), masked.marks.len(), masked.parcels.len()) == (length, shapes.len(), machines);
    (!is_whole).then_some("masked sums of another shape than was asked for")
}

/// Opens a sum, from what all machines of a turn sent and the shares of those that helped, by their places among these. An error where
/// these are too few, or do not fit.
pub(crate) fn open(shapes: &[SlotShape], masked: &[Masked], helped: &[(usize, Shares)]) -> Result<Vec<Total>, String> {
    let (machines, needed) = (masked.len(), threshold(masked.len()));
    let is_whole = |shares: &Shares| {
        let open = shares.open.iter().filter(|open| **open).count();
        shares.open.len() == shapes.len()
            && shares.shares.len() == machines
            && shares.shares.iter().all(|of| of.len() == open)
    };
    // Honest machines find the same slots open.
    let alike = |open: &[bool]| {
        let alike = helped.iter().filter(|(_, shares)| shares.open == open && is_whole(shares));
        alike.map(|(place, shares)| (*place, shares)).collect::<Vec<_>>()
    };
    let helped = helped.iter().map(|(_, shares)| alike(&shares.open)).find(|alike| alike.len() >= needed);
    let Some(helped) = helped else {
        return Err(format!("too few of {machines} machines helped to open a sum, want {needed}"));
    };
    let is_open = &helped[0].1.open;
    let (mut totals, mut begin, mut place) = (Vec::new(), 0, 0);
    for (slot, (shape, is_open)) in shapes.iter().zip(is_open).enumerate() {
        let end = begin + shape.length;
        if !is_open {
            totals.push(None);
            begin = end;
            continue;
        }
        let mut total = vec![0i128; shape.length];
        for masked in masked {
            let numbers = &masked.numbers[begin..end];
            total.iter_mut().zip(numbers).for_each(|(total, number)| *total = total.wrapping_add(*number));
        }
        for (machine, masked) in masked.iter().enumerate() {
            let shares: Vec<(u8, Seed)> =
                helped.iter().map(|(by, shares)| (*by as u8, shares.shares[machine][place])).collect();
            let seed = join(&shares, needed).filter(|seed| mark(seed) == masked.marks[slot]);
            let seed = seed.ok_or("shares of a mask that do not fit together")?;
            mask(&mut total, &seed, false);
        }
        totals.push(Some(total));
        (begin, place) = (end, place + 1);
    }
    Ok(totals)
}
