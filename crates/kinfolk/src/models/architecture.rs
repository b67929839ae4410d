//! What a network is made of, as data: what an engine for another device compiles.

use super::Precision;
use std::ops::Range;

/// A network whose layers are known, in the order in which they compute.
#[derive(Debug, Clone, PartialEq)]
pub struct Architecture {
    /// Height, width and channels of an image, or the numbers of a row as channels of one pixel.
    pub input: [usize; 3],
    /// The layers.
    pub layers: Vec<Part>,
    /// What the outputs mean.
    pub judged: Judged,
    /// Share of each row's target that is spread evenly over all classes in training.
    pub smoothing: f64,
    /// Number of parameters.
    pub width: usize,
    /// The numbers it computes in.
    pub precision: Precision,
}

/// What the outputs of a network mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// One number; squared error.
    Squared,
    /// One number, the log odds of class 1.
    Logistic,
    /// A score for each class.
    Softmax,
}

/// Windows over an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Height, width and channels of what goes in.
    pub input: [usize; 3],
    /// Height, width and channels of what comes out.
    pub output: [usize; 3],
    /// Height and width of a window.
    pub size: [usize; 2],
    /// Lines and columns from one window to the next.
    pub stride: [usize; 2],
    /// Lines above the image, and columns to the left of it, that the first window begins with.
    pub padding: [usize; 2],
}

/// One layer. Tensors are places among the parameters; an empty bias is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Filters: weights ordered row, column, input, output.
    Convolution {
        /// Where filters lie on the image.
        windows: Windows,
        /// The filters.
        weight: Range<usize>,
        /// A number for each of them.
        bias: Range<usize>,
    },
    /// The largest or the mean of every window.
    Pool {
        /// Where the windows are.
        windows: Windows,
        /// What becomes of their pixels.
        kind: PoolKind,
    },
    /// A product with outputs × inputs.
    Dense {
        /// Numbers that go in.
        inputs: usize,
        /// Numbers that come out.
        outputs: usize,
        /// The weight.
        weight: Range<usize>,
        /// A number for each output.
        bias: Range<usize>,
        /// Whether negative outputs become 0.
        rectify: bool,
    },
    /// Negative numbers become 0.
    Rectifier,
}

/// What becomes of the pixels of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest.
    Largest,
    /// The largest, and at least 0.
    Rectified,
    /// The mean.
    Mean,
}
