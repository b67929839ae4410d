//! Models as safetensors files, tensor by tensor, in the precision they travel in.

mod names;

pub(crate) use names::{CLIENT_FILES, ClientNames, plain_name};

use crate::disk::write_all_atomically;
use crate::error::{Error, ErrorKind, Result};
use crate::models::{Layout, Model, Precision};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::HashMap;
use std::path::Path;

/// The bytes of a model file. `about` is kept with it: the label, the seed, the cluster.
pub fn bytes(params: &[f64], layout: &Layout, precision: Precision, about: &[(&str, String)]) -> Result<Vec<u8>> {
    let fault = |error: safetensors::SafeTensorError| {
        Error::new(ErrorKind::Io, format!("a model could not be written: {error}"))
    };
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = layout
        .tensors
        .iter()
        .map(|tensor| {
            let values = &params[tensor.range()];
            let bytes = match precision {
                Precision::F32 => values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
                Precision::F64 => values.iter().flat_map(|&value| value.to_le_bytes()).collect(),
            };
            (tensor.name.clone(), tensor.shape.clone(), bytes)
        })
        .collect();
    let kind = if precision == Precision::F32 { Dtype::F32 } else { Dtype::F64 };
    let mut views = Vec::new();
    for (name, shape, bytes) in &tensors {
        views.push((name.as_str(), TensorView::new(kind, shape.clone(), bytes).map_err(fault)?));
    }
    // One entry only: the writer keeps metadata in an unordered map, and files must be the same to the byte.
    let about: Vec<String> = about.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let metadata = HashMap::from([("kinfolk".to_string(), about.join(" "))]);
    safetensors::serialize(views, Some(metadata)).map_err(fault)
}

/// Writes the models of clients into a folder, one file each, and beside them which file is whose.
pub(crate) fn write_clients(
    folder: &Path,
    models: &[(&str, Vec<f64>)],
    model: &dyn Model,
    about: &[(&str, String)],
) -> Result<()> {
    let mut names = ClientNames::default();
    let mut files = Vec::new();
    for (id, params) in models {
        let name = names.of(id);
        let about = [about, &[("model", name.clone())]].concat();
        let bytes =
            bytes(&params[..model.layout().len().min(params.len())], model.layout(), model.precision(), &about)?;
        files.push((format!("{name}.safetensors"), bytes));
    }
    files.extend(names.table()?.map(|table| (CLIENT_FILES.to_string(), table)));
    std::fs::create_dir_all(folder).map_err(|error| Error::io("creating", folder, error))?;
    write_all_atomically(folder, files)
}

/// A tensor of a model file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Values,
}

/// The values of a tensor, in the precision they were written in.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Four bytes each.
    F32(Vec<f32>),
    /// Eight bytes each.
    F64(Vec<f64>),
}

impl Values {
    /// The values in double precision.
    pub(crate) fn to_f64(&self) -> Vec<f64> {
        match self {
            Self::F32(values) => values.iter().map(|&value| f64::from(value)).collect(),
            Self::F64(values) => values.clone(),
        }
    }
}

/// Reads all tensors of a model, by ascending names.
pub fn tensors(path: &Path) -> Result<Vec<Tensor>> {
    let bytes = std::fs::read(path).map_err(|error| Error::io("reading", path, error))?;
    of_bytes(&bytes).map_err(|error| error.at(path.display()))
}

/// The tensors of a file's content, by ascending names.
pub(crate) fn of_bytes(bytes: &[u8]) -> Result<Vec<Tensor>> {
    let fault = Error::data;
    let file = SafeTensors::deserialize(bytes).map_err(|error| fault(format!("not a safetensors file: {error}")))?;
    let tensor = |(name, view): (&str, TensorView)| {
        let values = match view.dtype() {
            Dtype::F32 => Values::F32(view.data().as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect()),
            Dtype::F64 => Values::F64(view.data().as_chunks::<8>().0.iter().map(|&b| f64::from_le_bytes(b)).collect()),
            other => return Err(fault(format!("{name} holds {other:?}, want F32 or F64"))),
        };
        Ok(Tensor { name: name.to_string(), shape: view.shape().to_vec(), values })
    };
    let mut found = file.iter().map(tensor).collect::<Result<Vec<_>>>()?;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Reads a model that must have this layout.
pub fn read(path: &Path, layout: &Layout) -> Result<Vec<f64>> {
    let fault = |message: String| Error::data(format!("{}: {message}", path.display()));
    let found = tensors(path)?;
    let mut params = Vec::with_capacity(layout.len());
    for wanted in &layout.tensors {
        let tensor = found.iter().find(|tensor| tensor.name == wanted.name);
        let tensor = tensor.ok_or_else(|| fault(format!("has no tensor {}", wanted.name)))?;
        if tensor.shape != wanted.shape {
            return Err(fault(format!("{} has shape {:?}, want {:?}", wanted.name, tensor.shape, wanted.shape)));
        }
        params.extend(tensor.values.to_f64());
    }
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::TensorPlace;

    fn layout(columns: usize) -> Layout {
        let weight = TensorPlace { name: "layer0.weight".into(), shape: vec![1, columns], offset: 0 };
        let bias = TensorPlace { name: "layer0.bias".into(), shape: vec![1], offset: columns };
        Layout { tensors: vec![weight, bias] }
    }

    #[test]
    fn a_model_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let params = [0.1, -2.0, 3.5];
        std::fs::write(&path, bytes(&params, &layout(2), Precision::F64, &[("label", "ifca".into())]).unwrap())
            .unwrap();
        assert_eq!(read(&path, &layout(2)).unwrap(), params);
        let tensors = tensors(&path).unwrap();
        assert_eq!((tensors[0].name.as_str(), &tensors[0].values), ("layer0.bias", &Values::F64(vec![3.5])));
        assert_eq!(tensors[1].shape, [1, 2]);
        assert!(read(&path, &layout(3)).unwrap_err().to_string().contains("shape [1, 2], want [1, 3]"));
    }
}
