//! Training of networks with one hidden layer on all rows, in the space of the rows: exact, and quick where a client has fewer rows than
//! columns. No client's own first weight is ever formed.

use crate::device::{Buffer, Device, Kernel};
use crate::engine::{Engine, Model};
use crate::program::{Stored, stride};
use cudarc::cublas::{result as cublas, sys};
use kinfolk::models::architecture::{Architecture, Judged, Part};
use kinfolk::{Error, ErrorKind, Result};
use std::fmt::Write;
use std::sync::Arc;

/// Memory for rows, products and changes: what is left of the memory to work in.
const ROOM: usize = 6 << 30;

/// Memory that the threads of a block share, on every device that is taken.
const SHARED: usize = 160 << 10;

/// What kernels are given: as in `gram.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Args {
    rows: u64,
    order: u64,
    classes: u64,
    x: u64,
    sorted_x: u64,
    products: u64,
    models: u64,
    grams: u64,
    losses: u64,
    choices: u64,
    places: u64,
    weights: u64,
    changes: u64,
    uppers: u64,
    scratch: u64,
    total: u64,
    clients: u32,
    steps: u32,
    bytes: u32,
    length: f32,
    smoothing: f32,
}

/// Rows of a client, columns, hidden units, outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) hidden: usize,
    pub(crate) outputs: usize,
}

impl Shape {
    /// That of a network with one hidden layer and so many rows a client, if kernels are there for it.
    pub(crate) fn of(architecture: &Architecture, rows: usize) -> Option<Self> {
        let [
            Part::Dense { inputs, outputs: hidden, bias: first, rectify: true, .. },
            Part::Dense { outputs, bias: last, rectify: false, .. },
        ] = &architecture.layers[..]
        else {
            return None;
        };
        let shape = Self { rows, columns: *inputs, hidden: *hidden, outputs: *outputs };
        let fits = !first.is_empty()
            && !last.is_empty()
            && architecture.judged == Judged::Softmax
            && (1..=*inputs).contains(&rows)
            && hidden % 4 == 0
            && *outputs <= 16
            && shape.judged_at_once() <= 48 << 10
            && shape.shared(false) <= SHARED + (60 << 10);
        fits.then_some(shape)
    }

    /// Bytes that the threads of a block share when they judge.
    fn judged_at_once(&self) -> usize {
        4 * (self.outputs * self.hidden + 9 * self.hidden + self.outputs + self.rows)
    }

    /// Bytes that the threads of a block share in training; `all` with hidden units and the products of rows.
    fn shared(&self, all: bool) -> usize {
        let Self { rows, hidden, outputs, .. } = *self;
        let least = rows * hidden + outputs * hidden + hidden + outputs + rows * outputs;
        4 * (least + if all { rows * hidden + rows * rows } else { 0 })
    }

    /// Whether all of it fits into the memory that a block shares.
    fn is_shared(&self) -> bool {
        self.shared(true) <= SHARED
    }

    /// Parameters above the first weight.
    fn upper(&self) -> usize {
        self.hidden + self.outputs * self.hidden + self.outputs
    }

    /// Bytes for so many clients and models.
    pub(crate) fn bytes(&self, clients: usize, models: usize) -> usize {
        let Self { rows, columns, hidden, .. } = *self;
        4 * clients * (2 * rows * columns + (models + 2) * rows * hidden + rows * rows + self.upper())
    }

    pub(crate) fn fits(&self, clients: usize, models: usize) -> bool {
        self.bytes(clients, models) <= ROOM
    }

    /// The text of its kernels.
    pub(crate) fn text(&self, width: usize) -> String {
        let Self { rows, columns, hidden, outputs } = *self;
        let mut text = String::new();
        let numbers = [
            ("MOST_LAYERS", crate::program::MOST_LAYERS),
            ("MOST_PULLS", crate::program::MOST_PULLS),
            ("MOST_FROZEN", crate::program::MOST_FROZEN),
            ("R", 1),
            ("WIDTH", width),
            ("STRIDE", stride(width)),
            ("TF32", 0),
        ];
        for (name, value) in numbers {
            let _ = writeln!(text, "#define {name} {value}");
        }
        text.push_str(include_str!("kernels.cu"));
        let shared = usize::from(self.is_shared());
        for (name, value) in [("N", rows), ("D", columns), ("H", hidden), ("O", outputs), ("IN_SHARED", shared)] {
            let _ = writeln!(text, "#define {name} {value}");
        }
        text.push_str(include_str!("gram.cu"));
        let _ = writeln!(text, "static_assert(sizeof(Gram) == {}, \"Gram\");", size_of::<Args>());
        text
    }
}

/// cuBLAS, on a device's stream.
struct Products {
    handle: sys::cublasHandle_t,
}

// SAFETY: a handle may be used from any thread, by one at a time: it is part of an engine, which is behind a lock.
unsafe impl Send for Products {}

fn failure(error: impl std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Io, format!("device: a product failed: {error:?}"))
}

impl Products {
    fn new(device: &Device, tf32: bool) -> Result<Self> {
        let handle = cublas::create_handle().map_err(failure)?;
        let mode = match tf32 {
            true => sys::cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH,
            false => sys::cublasMath_t::CUBLAS_DEFAULT_MATH,
        };
        // SAFETY: handle and stream are there as long as the device, which is never closed.
        unsafe {
            cublas::set_stream(handle, device.stream().cast()).map_err(failure)?;
            sys::cublasSetMathMode(handle, mode);
        }
        Ok(Self { handle })
    }

    /// C (m × n) = A · B, in columns; `a` and `b` say whether factors are transposed, `sizes` are m, n and k, `lines` the distances of columns,
    /// and `strides` those of `count` products.
    fn multiply(
        &self,
        [a, b]: [bool; 2],
        sizes: [usize; 3],
        places: [u64; 3],
        lines: [usize; 3],
        (count, strides): (usize, [usize; 3]),
    ) -> Result<()> {
        let way = |transposed| match transposed {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        };
        let [m, n, k] = sizes.map(|size| size as i32);
        let [lda, ldb, ldc] = lines.map(|line| line as i32);
        let [sa, sb, sc] = strides.map(|stride| stride as i64);
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the places are buffers that were allocated for exactly these shapes.
        unsafe {
            cublas::sgemm_strided_batched(
                self.handle,
                way(a),
                way(b),
                m,
                n,
                k,
                &one,
                places[0] as *const f32,
                lda,
                sa,
                places[1] as *const f32,
                ldb,
                sb,
                &zero,
                places[2] as *mut f32,
                ldc,
                sc,
                count as i32,
            )
        }
        .map_err(failure)
    }
}

/// Clients with as many rows each, prepared for the space of the rows.
pub(crate) struct Prepared {
    /// The clients' rows on the device, one client after the other.
    order_of: Vec<u32>,
    shape: Shape,
    products: Products,
    rows: Kernel,
    sort: Kernel,
    judge: Kernel,
    train: Kernel,
    total: Kernel,
    order: Buffer,
    x: Buffer,
    sorted_x: Buffer,
    grams: Buffer,
    work: Vec<Buffer>,
}

/// What clients chose, and the sums of what they learned by choice.
pub(crate) struct Learned {
    pub(crate) choices: Vec<u32>,
    /// Mean losses of the chosen models.
    pub(crate) losses: Vec<f64>,
    /// One for each model; empty where nobody chose it.
    pub(crate) totals: Vec<Vec<f64>>,
}

/// How all clients train.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) count: u32,
    pub(crate) length: f64,
}

impl Engine {
    /// The shape of training in the space of the rows, if that can be.
    pub(crate) fn gram_shape(&self, rows: usize, clients: usize, models: usize) -> Option<Shape> {
        // SAFETY: only looks whether the library can be loaded.
        let has_products = || unsafe { sys::is_culib_present() };
        let fits = |shape: &Shape| {
            shape.shared(shape.is_shared()) <= self.device.shared && shape.fits(clients, models) && has_products()
        };
        Shape::of(&self.architecture, rows).filter(fits)
    }

    fn prepare(&mut self, shape: Shape, order_of: Vec<u32>) -> Result<Prepared> {
        let device = self.device.clone();
        let clients = order_of.len() / shape.rows;
        let Shape { rows, columns, .. } = shape;
        let module = device.compile(&shape.text(self.architecture.width))?;
        let shared = shape.shared(shape.is_shared());
        let mut prepared = Prepared {
            shape,
            products: Products::new(&device, self.tf32)?,
            rows: module.kernel("gram_rows", [order_of.len(), 1], 128)?,
            sort: module.kernel("gram_sort", [order_of.len(), 1], 128)?,
            judge: module.kernel("gram_judge", [clients, 1], 256)?,
            train: module.kernel("gram_train", [clients, 1], 512)?.sharing(shared)?,
            total: module.kernel("gram_total", [shape.upper().div_ceil(128), 1], 128)?,
            order: device.upload(&order_of)?,
            x: Buffer::default(),
            sorted_x: Buffer::default(),
            grams: Buffer::default(),
            work: Vec::new(),
            order_of,
        };
        device.grow(&mut prepared.x, clients * rows * columns * 4)?;
        device.grow(&mut prepared.sorted_x, clients * rows * columns * 4)?;
        device.grow(&mut prepared.grams, clients * rows * rows * 4)?;
        let (all, _, _) = self.rows.addresses();
        let bytes = u32::from(self.rows.stored() == Stored::Bytes);
        let (order, x) = (prepared.order.address, prepared.x.address);
        device.launch(&prepared.rows, 1, &Args { rows: all, order, x, bytes, ..Args::default() })?;
        prepared.products.multiply(
            [true, false],
            [rows, rows, columns],
            [x, x, prepared.grams.address],
            [columns, columns, rows],
            (clients, [rows * columns, rows * columns, rows * rows]),
        )?;
        Ok(prepared)
    }

    /// Choices, training in the space of the rows, and sums by choice.
    pub(crate) fn train_by_gram(
        &mut self,
        shape: Shape,
        rows: &[(u32, Vec<u32>)],
        models: &[Model],
        steps: Steps,
        weights: &[f64],
    ) -> Result<Learned> {
        self.device.bind()?;
        let order_of: Vec<u32> = rows.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
        let mut prepared = match self.prepared.take() {
            Some(prepared) if prepared.order_of == order_of && prepared.shape == shape => prepared,
            _ => self.prepare(shape, order_of)?,
        };
        let learned = self.learn(&mut prepared, models, steps, weights);
        self.prepared = Some(prepared);
        learned
    }

    fn learn(&mut self, prepared: &mut Prepared, models: &[Model], steps: Steps, weights: &[f64]) -> Result<Learned> {
        let device = self.device.clone();
        let Shape { rows, columns, hidden, .. } = prepared.shape;
        let (clients, upper, first) = (weights.len(), prepared.shape.upper(), hidden * columns);
        let places = self.send(models.iter())?;
        let of_models: Vec<u64> = models.iter().map(|model| places[&Arc::as_ptr(model)]).collect();
        prepared.work.resize_with(10, Buffer::default);
        let [products, list, losses, choices, sorted, shares, changes, uppers, scratch, total] = &mut prepared.work[..]
        else {
            unreachable!("ten buffers")
        };
        device.grow(products, models.len() * clients * rows * hidden * 4)?;
        device.grow(losses, models.len() * clients * 8)?;
        device.grow(changes, clients * rows * hidden * 4)?;
        device.grow(uppers, clients * upper * 4)?;
        device.grow(scratch, if prepared.shape.is_shared() { 0 } else { clients * rows * hidden * 4 })?;
        device.grow(total, models.len() * (upper * 8 + first * 4))?;
        device.fill(list, &of_models)?;
        device.fill(shares, weights)?;
        let (_, classes, _) = self.rows.addresses();
        let mut args = Args {
            order: prepared.order.address,
            classes,
            products: products.address,
            models: list.address,
            grams: prepared.grams.address,
            losses: losses.address,
            weights: shares.address,
            changes: changes.address,
            uppers: uppers.address,
            scratch: scratch.address,
            total: total.address,
            clients: clients as u32,
            steps: steps.count,
            length: steps.length as f32,
            smoothing: self.architecture.smoothing as f32,
            ..Args::default()
        };
        for (place, &model) in of_models.iter().enumerate() {
            let to = products.address + (place * clients * rows * hidden * 4) as u64;
            prepared.products.multiply(
                [true, false],
                [hidden, clients * rows, columns],
                [model, prepared.x.address, to],
                [columns, columns, hidden],
                (1, [0; 3]),
            )?;
        }
        device.launch(&prepared.judge.clone().wide(models.len()), 1, &args)?;
        let found: Vec<f64> = device.read(losses.address, models.len() * clients)?;
        let mut chosen = Vec::with_capacity(clients);
        let mut best = Vec::with_capacity(clients);
        for client in 0..clients {
            let of_client: Vec<f64> = (0..models.len()).map(|model| found[model * clients + client]).collect();
            let choice = crate::meeting::first_smallest(&of_client);
            chosen.push(choice.position as u32);
            best.push(if of_client.len() == 1 { of_client[0] } else { choice.loss } / rows as f64);
        }
        // Clients with the same choice lie side by side.
        let mut turns: Vec<usize> = (0..clients).collect();
        turns.sort_by_key(|&client| chosen[client]);
        let mut places = vec![0u32; clients];
        turns.iter().enumerate().for_each(|(place, &client)| places[client] = place as u32);
        device.fill(choices, &chosen)?;
        device.fill(sorted, &places)?;
        (args.choices, args.places) = (choices.address, sorted.address);
        device.launch(&prepared.train, 1, &args)?;
        let mut x = prepared.x.address;
        if models.len() > 1 {
            (args.sorted_x, args.x) = (prepared.x.address, prepared.sorted_x.address);
            device.launch(&prepared.sort, 1, &args)?;
            x = prepared.sorted_x.address;
        }
        device.launch(&prepared.total.clone().wide(models.len()), 1, &args)?;
        let mut totals = Vec::with_capacity(models.len());
        let firsts = total.address + (models.len() * upper * 8) as u64;
        let counts: Vec<usize> =
            (0..models.len()).map(|model| chosen.iter().filter(|&&choice| choice as usize == model).count()).collect();
        let mut before = 0;
        for (model, &count) in counts.iter().enumerate() {
            if count > 0 {
                let from = |base: u64, width: usize| base + (before * rows * width * 4) as u64;
                prepared.products.multiply(
                    [false, true],
                    [columns, hidden, count * rows],
                    [from(x, columns), from(changes.address, hidden), firsts + (model * first * 4) as u64],
                    [columns, hidden, columns],
                    (1, [0; 3]),
                )?;
            }
            before += count;
        }
        let above: Vec<f64> = device.read(total.address, models.len() * upper)?;
        let below: Vec<f32> = device.read(firsts, models.len() * first)?;
        for (model, &count) in counts.iter().enumerate() {
            if count == 0 {
                totals.push(Vec::new());
                continue;
            }
            let weight: f64 = weights
                .iter()
                .zip(&chosen)
                .filter(|(_, choice)| **choice as usize == model)
                .map(|(weight, _)| weight)
                .sum();
            let changes = &below[model * first..(model + 1) * first];
            let own = models[model].iter().zip(changes).map(|(&w, &change)| weight * f64::from(w) + f64::from(change));
            totals.push(own.chain(above[model * upper..(model + 1) * upper].iter().copied()).collect());
        }
        Ok(Learned { choices: chosen, losses: best, totals })
    }
}
