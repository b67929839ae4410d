//! The mixtures that methods found.

use super::*;
use crate::disk::comma_separated;

/// The mixtures that one method found on one seed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MixtureRecord {
    /// The method's label.
    pub label: String,
    /// The seed of this repeat.
    pub seed: u64,
    /// Number of components.
    pub components: usize,
    /// Whether components have the same order for all clients.
    pub ordered: bool,
    /// Names of a centre's coordinates; may be empty.
    pub features: Vec<String>,
    /// Names of the rows' classes; may be empty.
    pub classes: Vec<String>,
    /// The common centres, concatenated; empty where a method has none.
    pub common: Vec<f64>,
    /// Every client's own.
    pub clients: Vec<ClientMixture>,
}

/// The mixture of one client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientMixture {
    /// The client's id.
    pub client: String,
    /// The mixing weights.
    pub weights: Vec<f64>,
    /// The centres of its components, concatenated.
    pub centres: Vec<f64>,
    /// Components of its training rows.
    pub train: RowsRecord,
    /// Components of its test rows.
    pub test: RowsRecord,
}

/// The component of every row of one part of a client's data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RowsRecord {
    /// The most likely component.
    pub(crate) components: Vec<u32>,
    /// The class; empty where rows have none.
    pub(crate) classes: Vec<u32>,
    /// The row's line in its file; empty where there is none.
    pub(crate) lines: Vec<u64>,
}

table_row! {
    /// The component of one row.
    pub struct RowRecord in "rows.csv" {
        /// The method's label.
        pub label: String,
        /// The seed of this repeat.
        pub seed: u64,
        /// The id of the row's client.
        pub client: String,
        /// `train` or `test`.
        pub split: String,
        /// The row's place in the file it was read from, or else in its part of the client's rows.
        pub row: u64,
        /// The most likely component.
        pub component: u32,
        /// The row's class, where it has one.
        pub class: Option<String>,
    }
}

impl MixtureRecord {
    /// Number of a centre's coordinates.
    pub(crate) fn width(&self) -> usize {
        let own = self.clients.iter().map(|client| client.centres.len());
        own.chain([self.common.len()]).max().unwrap_or(0) / self.components.max(1)
    }

    fn class_name(&self, class: u32) -> String {
        self.classes.get(class as usize).cloned().unwrap_or_else(|| class.to_string())
    }
}

impl ClientMixture {
    /// A client's weights and concatenated centres, without rows.
    pub fn new(client: &str, weights: &[f64], centres: &[f64]) -> Self {
        let (weights, centres) = (weights.to_vec(), centres.to_vec());
        Self { client: client.to_string(), weights, centres, ..Self::default() }
    }
}

impl RowsRecord {
    /// Components of rows, with their classes and lines if any.
    pub(crate) fn new(components: &[u32], classes: Option<&[u32]>, lines: Option<&[u64]>) -> Self {
        let (classes, lines) = (classes.unwrap_or_default().to_vec(), lines.unwrap_or_default().to_vec());
        Self { components: components.to_vec(), classes, lines }
    }
}

/// The bytes of components.csv: common centres first, without client and weight, then the clients'. `None` without any.
pub(crate) fn components_csv(mixtures: &[MixtureRecord]) -> Result<Option<Vec<u8>>> {
    let Some(widest) = mixtures.iter().max_by_key(|mixture| mixture.width()) else { return Ok(None) };
    let width = widest.width();
    let name = |column: usize| widest.features.get(column).cloned().unwrap_or_else(|| format!("x{column}"));
    let cell = |value: Option<&f64>| value.map_or_else(String::new, f64::to_string);
    let header = ["label", "seed", "client", "component", "weight"].map(str::to_string);
    let header: Vec<String> = header.into_iter().chain((0..width).map(name)).collect();
    let rows = mixtures.iter().flat_map(|mixture| {
        let common = ("", &[][..], &mixture.common[..]);
        let own = mixture.clients.iter().map(|client| (&*client.client, &client.weights[..], &client.centres[..]));
        let rows = [common].into_iter().chain(own).flat_map(|(client, weights, centres)| {
            centres.chunks(mixture.width().max(1)).enumerate().map(move |(component, centre)| {
                let mut row = vec![mixture.label.clone(), mixture.seed.to_string(), client.to_string()];
                row.extend([component.to_string(), cell(weights.get(component))]);
                row.extend((0..width).map(|column| cell(centre.get(column))));
                row
            })
        });
        rows.collect::<Vec<_>>()
    });
    comma_separated("components.csv", header, rows).map(Some)
}

/// The bytes of rows.csv; `None` where no method assigned rows.
pub(crate) fn rows_csv(mixtures: &[MixtureRecord]) -> Result<Option<Vec<u8>>> {
    let clients = mixtures.iter().flat_map(|mixture| mixture.clients.iter().map(move |client| (mixture, client)));
    let parts = clients.flat_map(|(mixture, client)| {
        [("train", &client.train), ("test", &client.test)].map(|(split, rows)| (mixture, client, split, rows))
    });
    let rows = parts.flat_map(|(mixture, client, split, rows)| {
        rows.components.iter().enumerate().map(move |(place, &component)| RowRecord {
            label: mixture.label.clone(),
            seed: mixture.seed,
            client: client.client.clone(),
            split: split.to_string(),
            row: rows.lines.get(place).copied().unwrap_or(place as u64),
            component,
            class: rows.classes.get(place).map(|&class| mixture.class_name(class)),
        })
    });
    let mut rows = rows.peekable();
    rows.peek().is_some().then(|| table::write::<RowRecord>(rows)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fabricated;

    #[test]
    fn components_and_rows_have_the_columns_of_the_contract() {
        let mixture = fabricated::mixture("em", 7);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("csv is text");
        let components = |mixtures: &[MixtureRecord]| components_csv(mixtures).expect("in memory").map(text);
        let rows = |mixtures: &[MixtureRecord]| rows_csv(mixtures).expect("in memory").map(text);
        assert_eq!(
            components(std::slice::from_ref(&mixture)).expect("mixtures"),
            "label,seed,client,component,weight,age,\"pay, net\"\n\
             em,7,,0,,0,1\nem,7,,1,,5,1\n\
             em,7,north,0,0.25,0.5,1\nem,7,north,1,0.75,5,1.5\n\
             em,7,south,0,0.5,9,9\nem,7,south,1,0.5,-9,9\n"
        );
        assert_eq!(
            rows(std::slice::from_ref(&mixture)).expect("rows"),
            "label,seed,client,split,row,component,class\n\
             em,7,north,train,12,1,high\nem,7,north,train,3,0,low\nem,7,north,test,4,1,2\n\
             em,7,south,train,0,0,\nem,7,south,train,1,1,\n"
        );
        // Without names, without common centres, and beside a mixture of other width.
        let narrow = MixtureRecord {
            features: Vec::new(),
            components: 1,
            common: Vec::new(),
            clients: vec![ClientMixture::new("west", &[1.0], &[3.0, 4.0, 5.0])],
            ..mixture.clone()
        };
        let both = components(&[mixture, narrow.clone()]).expect("mixtures");
        assert!(both.starts_with("label,seed,client,component,weight,x0,x1,x2\nem,7,,0,,0,1,\n"), "{both}");
        assert!(both.ends_with("em,7,west,0,1,3,4,5\n"), "{both}");
        assert_eq!((rows(&[narrow]), components(&[])), (None, None));
    }
}
