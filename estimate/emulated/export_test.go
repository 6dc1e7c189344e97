package emulated

var OrderMeans = orderMeans
