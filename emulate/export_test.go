package emulate

var OrderMeans = orderMeans
