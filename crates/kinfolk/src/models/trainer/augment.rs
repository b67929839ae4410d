//! What training does to images: mirrors and moves them, drawn anew each time.

use super::*;
use crate::data::{Augment, Form};
use rand::RngExt;

/// Copies images of this form into `out`, each mirrored or not and moved by some pixels; what moves in is black.
/// Returns false, and copies nothing, where there is nothing to do.
pub(super) fn augment<T: Real>(form: Form, x: &[T], rng: &mut Rng, out: &mut Vec<T>) -> bool {
    let Form::Image { channels, height, width, augment } = form else { return false };
    if augment == Augment::default() {
        return false;
    }
    out.clear();
    out.resize(x.len(), T::ZERO);
    let reach = augment.crop as i64;
    let size = channels * height * width;
    for (image, out) in x.chunks_exact(size).zip(out.chunks_exact_mut(size)) {
        let flip = augment.flip && rng.random::<bool>();
        let (down, right) = (rng.random_range(-reach..=reach), rng.random_range(-reach..=reach));
        for (plane, out) in image.chunks_exact(height * width).zip(out.chunks_exact_mut(height * width)) {
            for (to, out) in out.chunks_exact_mut(width).enumerate() {
                let from = to as i64 - down;
                if !(0..height as i64).contains(&from) {
                    continue;
                }
                let line = &plane[from as usize * width..(from as usize + 1) * width];
                let kept = width - (right.unsigned_abs() as usize).min(width);
                let (to, from) = if right < 0 { (0, width - kept) } else { (width - kept, 0) };
                out[to..to + kept].copy_from_slice(&line[from..from + kept]);
                if flip {
                    out.reverse();
                }
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    const IMAGE: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

    fn form(flip: bool, crop: usize) -> Form {
        Form::Image { channels: 1, height: 2, width: 3, augment: Augment { flip, crop } }
    }

    #[test]
    fn nothing_is_copied_where_there_is_nothing_to_do() {
        let mut out = Vec::new();
        assert!(!augment(form(false, 0), &IMAGE, &mut Key::new(1).rng(), &mut out));
        assert!(!augment(Form::Numbers, &IMAGE, &mut Key::new(1).rng(), &mut out));
        assert!(out.is_empty());
    }

    #[test]
    fn flips_mirror_every_line_of_about_half_the_images() {
        let (x, mut out) = (IMAGE.repeat(100), Vec::new());
        assert!(augment(form(true, 0), &x, &mut Key::new(1).rng(), &mut out));
        let mirrored = out.chunks_exact(6).filter(|image| *image == [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]).count();
        assert_eq!(out.chunks_exact(6).filter(|image| *image == IMAGE).count(), 100 - mirrored);
        assert!((30..70).contains(&mirrored), "{mirrored}");
    }

    #[test]
    fn crops_are_all_the_moves_within_reach() {
        let (x, mut out) = (IMAGE.repeat(200), Vec::new());
        augment(form(false, 1), &x, &mut Key::new(1).rng(), &mut out);
        let moved = |down: i64, right: i64| -> Vec<f64> {
            let pixel = |line: i64, column: i64| {
                let inside = (0..2).contains(&line) && (0..3).contains(&column);
                if inside { IMAGE[(line * 3 + column) as usize] } else { 0.0 }
            };
            (0..2).flat_map(|line| (0..3).map(move |column| pixel(line - down, column - right))).collect()
        };
        let moves: Vec<Vec<f64>> = (-1..=1).flat_map(|down| (-1..=1).map(move |right| moved(down, right))).collect();
        assert!(out.chunks_exact(6).all(|image| moves.iter().any(|moved| moved == image)));
        assert!(moves.iter().all(|moved| out.chunks_exact(6).any(|image| moved == image)));
        let mut far = Vec::new();
        augment(form(true, 9), &x, &mut Key::new(2).rng(), &mut far);
        assert!(far.chunks_exact(6).any(|image| image == [0.0; 6]));
    }
}
